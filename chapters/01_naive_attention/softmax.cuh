//| # A row of the softmax per warp
//|
//| Step 1 gives each row of $S$ to a thread. The 32 lanes of a warp then read from 32 rows at once, 32 lines
//| per request, and each lane reads its row three times. From step 2 on, a *warp* owns a row. Its lanes read
//| neighbouring elements, 512 bytes per request, and the row stays in shared memory between the passes, so
//| $S$ is read from device memory only once.
//|
//| **Budget.** A block is a single warp, with one row of float32 scores. At $N$ = 4096 that is 16 KB, plus 1
//| KB for the block, so 13 blocks fit on a multiprocessor.
//|
//| ![Three kernels and the matrices between them: S and P go through device
//| memory](../../docs/figures/three_kernels.svg)
#pragma once
#include "chapters/01_naive_attention/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::naive {

constexpr int kLoadsInFlight = 8;  // 16-byte loads that a thread issues before it uses the first
constexpr int kScoreAlign = 8;     // rows of S and P start at multiples of 8 elements, 16 bytes or more

//| ## Which lane holds which elements
//|
//| Lane i holds elements 4 i ... 4 i + 3 of every 128: one 16-byte load per lane, 512 contiguous bytes per
//| warp. It stores them in shared memory for the second and third pass. A lane only reads back what it wrote
//| itself, so no barrier is needed. Where the lanes have to agree on a number, they use shuffles.
//|
//| A block is one warp, so that as many rows as possible are in flight. Long rows leave room for only a few:
//| at N = 8192 a row takes 32 KB, and a multiprocessor of an H200 holds six. Each warp must therefore have
//| many loads in flight. A thread issues eight before it uses the first: 4 KB per warp, 24 KB for six warps.
//| Is that enough? At 4.8 TB/s, each of 132 multiprocessors gets 21 bytes per clock, and a load takes 684
//| clocks, so 684 * 21 bytes = 14 KB must be in flight. It is.
//|
//| `__shfl_xor_sync` combines the 32 lanes: in each of five rounds, a lane receives the value of the lane
//| whose number differs in one bit. At the end, all lanes hold the result.

/// Four neighbouring elements, moved by one load or store.
template <typename T>
struct __align__(4 * sizeof(T)) Four {
  T element[4];
};

/// Returns the maximum of `value` over the warp, in every lane.
inline __device__ float warp_max(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// Returns the sum of `value` over the warp, in every lane.
inline __device__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

/// P = softmax(S) and the log-sum-exp, one warp per row and one row per block. Grid: (rows); dynamic shared
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

  //| **First pass: the maximum.** Eight loads are issued before the first result is used. Lanes beyond the
  //| end of the row load its last elements again and replace them by $-\infty$ afterwards, which avoids a
  //| branch around each load.
  const float* s = scores + row * problem.score_stride;
  float row_max = -INFINITY;
  for (int first = 4 * lane; first < visible; first += 128 * kLoadsInFlight) {
    Four<float> loaded[kLoadsInFlight];
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u)  // beyond the row's end, the last elements again
      loaded[u] = *reinterpret_cast<const Four<float>*>(s + min(first + 128 * u, problem.score_stride - 4));
#pragma unroll
    for (int u = 0; u < kLoadsInFlight; ++u) {
      const int j = first + 128 * u;
      for (int i = 0; i < 4; ++i) {
        if (j + i >= visible) loaded[u].element[i] = -INFINITY;  // masked: S was never written here
        row_max = fmaxf(row_max, loaded[u].element[i]);
      }
      if (j < visible) *reinterpret_cast<Four<float>*>(cache + j) = loaded[u];
    }
  }
  row_max = warp_max(row_max);

  //| **Second pass: the sum.** Each lane overwrites a score with its exponential.
  float row_sum = 0.0f;
  for (int j = 4 * lane; j < visible; j += 128) {
    Four<float> four = *reinterpret_cast<const Four<float>*>(cache + j);
    for (int i = 0; i < 4; ++i) {
      four.element[i] = __expf(four.element[i] - row_max);
      row_sum += four.element[i];
    }
    *reinterpret_cast<Four<float>*>(cache + j) = four;
  }
  row_sum = warp_sum(row_sum);

  //| **Third pass: the quotients.** Each row needs one division, and multiplications after that. Each lane
  //| writes four results with one store of 8 bytes, next to those of its neighbours.
  const float inverse_sum = 1.0f / row_sum;  // not used if no key is visible
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
