//| # A row of the softmax to a warp
//|
//| Step 1 gives a row of $S$ to a thread: the 32 lanes of a warp read 32 rows at once, 32 lines a request,
//| and each of them reads its row three times. From step 2 on a *warp* owns a row. Its lanes read neighbours,
//| 512 bytes by one request, and $S$ is read from device memory once, since the row stays in shared memory
//| between the passes.
//|
//| **Budget.** A row of float32 scores a block, and a block is one warp. At $N$ = 4096 that is 16 KB and 1 KB
//| more, so 13 blocks fit a multiprocessor.
//|
//| **Predicted** (H200, d = 128, N = 4096, 64 heads, bf16): $S$ once in, $P$ once out:
//| $64 \cdot 4096^2 \cdot (4 + 2)$ bytes, 6.4 GB, at about 80 % of what a copy reaches, 3.78 TB/s: 2.1 ms.
//| The 80 % are an estimate.
//|
//| ![Three kernels and the matrices between them: S and P go through device
//| memory](../../docs/figures/three_kernels.svg)
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

constexpr int kLoadsInFlight = 8;  // 16-byte loads that a softmax thread issues before it looks at the first
constexpr int kScoreAlign = 8;     // rows of S and P start at multiples of 8 elements, 16 bytes or more

//| ## Which lane has what
//|
//| Lane i holds elements 4 i ... 4 i + 3 of every 128: one 16-byte load each, 512 bytes in a row for the
//| warp. It parks them in shared memory, where the second and third pass find them again. Every lane reads
//| back only what it wrote itself, so no barrier is needed.
//|
//| A block is one warp, so that as many rows as fit are under way: at N = 8192 a row is 32 KB, a block takes
//| 1 KB more, and a multiprocessor of an H200 has 228 KB: it holds six. So each warp must ask for much at
//| once: a thread issues eight loads before it looks at the first, 4 KB a warp and 24 KB for six. Enough: at
//| 4.8 TB/s each of 132 multiprocessors gets 21 bytes a clock, so 684 * 21 bytes, 14 KB, in the 684 clocks of
//| a load.
//|
//| Maximum and sum of the 32 lanes are combined by `__shfl_xor_sync`: in five rounds each lane takes the
//| value of the lane whose number differs in one bit, and at the end all of them hold the result.

/// Four neighbouring elements, moved by one load or store.
template <typename T>
struct __align__(4 * sizeof(T)) Four {
  T element[4];
};

/// The maximum of `value` over the warp, in every lane.
inline __device__ float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// The sum of `value` over the warp, in every lane.
inline __device__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

//| The kernel has no barrier at all: no lane reads what another wrote to memory. Shuffles order the lanes
//| where they must agree.
/// P = softmax(S) and the log-sum-exp, one warp a row and one row a block. Grid: (rows); dynamic shared
/// memory: score_stride floats.
template <typename T>
__global__ void __launch_bounds__(32)
    warp_softmax(const float* scores,  // [batch * heads, seqlen_q, score_stride]
                 T* probabilities,     // [batch * heads, seqlen_q, score_stride]
                 float* lse,           // [batch * heads, seqlen_q]
                 Problem problem) {
  const int lane = threadIdx.x;
  const int64_t row = blockIdx.x;
  const int visible = problem.visible_keys(int(row % problem.seqlen_q));
  float* cache = dynamic_shared<float>();  // [score_stride]

  //| **First pass: the maximum.** Eight loads are issued before the first result is looked at. Elements
  //| beyond the row's end read its last ones again, and become $-\infty$ afterwards: no branch stands around
  //| a load. What was loaded is parked in shared memory.
  const float* s = scores + row * problem.score_stride;
  float row_max = -INFINITY;
  for (int first = 4 * lane; first < visible; first += 128 * kLoadsInFlight) {
    Four<float> loaded[kLoadsInFlight];
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u)  // beyond the row's end: its last elements once more
      loaded[u] = *reinterpret_cast<const Four<float>*>(s + min(first + 128 * u, problem.score_stride - 4));
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u) {
      const int j = first + 128 * u;
      for (int i = 0; i < 4; ++i) {
        if (j + i >= visible) loaded[u].element[i] = -INFINITY;  // masked, so never written: exp makes it 0
        row_max = fmaxf(row_max, loaded[u].element[i]);
      }
      if (j < visible) *reinterpret_cast<Four<float>*>(cache + j) = loaded[u];
    }
  }
  row_max = warp_max(row_max);

  //| **Second pass: the sum.** Each lane reads what it wrote itself, and leaves the exponential in its place.
  float row_sum = 0.0f;
  for (int j = 4 * lane; j < visible; j += 128) {
    Four<float> four = *reinterpret_cast<const Four<float>*>(cache + j);
    for (int i = 0; i < 4; ++i) {
      four.element[i] = __expf(four.element[i] - row_max);
      row_sum += four.element[i];
    }
    *reinterpret_cast<Four<float>*>(cache + j) = four;  // the exponential is computed once, not twice
  }
  row_sum = warp_sum(row_sum);

  //| **Third pass: the quotients.** One division for the row, then multiplications. Four results leave by one
  //| store of 8 bytes, neighbouring lanes side by side.
  const float inverse_sum = 1.0f / row_sum;  // one division a row; not used if no key is visible
  T* p = probabilities + row * problem.score_stride;
  for (int j = 4 * lane; j < visible; j += 128) {
    const Four<float> four = *reinterpret_cast<const Four<float>*>(cache + j);
    Four<T> rounded;
    for (int i = 0; i < 4; ++i) rounded.element[i] = from_float<T>(four.element[i] * inverse_sum);
    *reinterpret_cast<Four<T>*>(p + j) = rounded;
  }
  if (lane == 0) lse[row] = visible > 0 ? row_max + logf(row_sum) : -INFINITY;
}

}  // namespace flashbook::naive
