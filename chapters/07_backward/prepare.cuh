//| # Before the products: D and the log-sum-exp
//|
//| A kernel that runs first. It reads O and dO once, and leaves two numbers for each query: $D$, and the log-sum-exp in the form that the other kernels want.
//|
//| The derivative of a softmax needs a sum over the whole row: $dS_{ij} = P_{ij}\,(dP_{ij} - \sum_k P_{ik}\,dP_{ik})$. A block that owns a tile of keys sees only a part of the row. The sum would
//| couple all blocks. But it is known beforehand: $\sum_k P_{ik}\,dP_{ik} = \sum_k P_{ik} \sum_c dO_{ic} V_{kc} = \sum_c dO_{ic} O_{ic}$. So $D_i$ is the product of two rows
//| of `head_dim` elements, and costs one pass over O and dO.
//|
//| ![The five products of a tile and where their operands lie](../../docs/figures/backward_products.svg)
//|
//| **Budget.** Two tensors read, two numbers a row written; for steps that add to dQ as many floats as Q has elements are set to zero. It is bound by memory.
#pragma once
#include "chapters/07_backward/problem.cuh"
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/ptx/convert.h"

namespace flashbook::backward {

//| ## The workspace
//|
//| What a step needs beyond its inputs and outputs. For each query two floats, whatever the number of keys. A step whose blocks add to dQ needs dQ in float besides, since
//| a sum of many parts in 16 bits would lose most of them. Nothing here has the size of the scores, and a test holds the steps to it.
/// What a step keeps besides its tensors, one after another: no array of seqlen_q x seqlen_k.
struct Workspace {
  float*
      lse;    ///< [batch * heads, padded_q]: log-sum-exp * log2(e); +inf where a row sees nothing, or is none
  float* d;   ///< [batch * heads, padded_q]: rowsum(dO * O); 0 where a row is none
  float* dq;  ///< [batch * heads, padded_q, head_dim], sums before the scale; of steps that add dQ
};

/// Bytes of a workspace for tiles of `tile` queries.
inline int64_t bytes_of_workspace(const Shape& shape, int tile, bool adds_dq) {
  const int64_t rows = int64_t(shape.batch) * shape.heads * problem_of(shape, tile).padded_q;
  return rows * int64_t(sizeof(float)) * (2 + (adds_dq ? shape.head_dim : 0));
}

/// The parts of the workspace of `tensors`.
inline Workspace workspace_of(const Shape& shape, int tile, const Tensors& tensors) {
  const int64_t rows = int64_t(shape.batch) * shape.heads * problem_of(shape, tile).padded_q;
  float* const first = static_cast<float*>(tensors.workspace);
  return {first, first + rows, first + 2 * rows};
}

//| ## A row for a few lanes
//|
//| A row of 64 elements of 16 bits is 128 bytes, which 8 lanes load as 16 bytes each. So `kLanes` lanes share a row, and a warp has four rows, two or one. All lanes of a row add up
//| their own eight products, and shuffles add up the lanes. The distance of a shuffle stays below `kLanes`, so that no lane meets one of another row.
/// What a thread loads at once.
template <typename T>
struct alignas(16) Piece {
  T values[8];
};

constexpr int kPrepareThreads = 256;

/// D, and the log-sum-exp as the kernels want it, for every row of the workspace; and zeros in `workspace.dq`
/// if kClearsDq. kHeadDim / 8 lanes share a row. Grid: (rows of workspace.d / rows of a block).
template <typename T, int kHeadDim, bool kClearsDq>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare(const T* o,        // [batch, heads, seqlen_q, kHeadDim], strides problem.at.o
            const T* d_o,      // [batch, heads, seqlen_q, kHeadDim], strides problem.at.d_o
            const float* lse,  // [batch * heads, seqlen_q]
            Workspace workspace, int64_t rows, Problem problem) {
  //| **Rows that are none.** The workspace has whole tiles, so some rows lie beyond the last query. Their lanes load nothing, but they take part in the shuffles, since a shuffle
  //| names the whole warp. They leave at `at >= rows`, after it.
  constexpr float kLog2e = 1.44269504f;
  constexpr int kLanes = kHeadDim / 8;  // of a row: 16 bytes each
  const int64_t at = int64_t(blockIdx.x) * (kPrepareThreads / kLanes) + threadIdx.x / kLanes;
  const int head = int(at / problem.padded_q), row = int(at % problem.padded_q), lane = threadIdx.x % kLanes;
  const bool is_row = at < rows && row < problem.seqlen_q;

  float sum = 0;
  if (is_row) {
    const auto a = reinterpret_cast<const Piece<T>*>(o + problem.of_query(problem.at.o, head, row))[lane];
    const auto b = reinterpret_cast<const Piece<T>*>(d_o + problem.of_query(problem.at.d_o, head, row))[lane];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(a.values[i]) * to_float(b.values[i]);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  if (at >= rows) return;

  //| **What the log-sum-exp becomes.** The kernels compute $P = 2^{s \cdot \log_2 e\,\cdot scale - L}$ with $L$ the log-sum-exp in powers of two, so it is multiplied once here and not for every score.
  //| Two kinds of rows get $L = +\infty$. A query that sees no key has a log-sum-exp of $-\infty$; taken as it is, $-\infty - (-\infty)$ would be NaN. And a row beyond the last query has a score of 0,
  //| since its Q is zeros; with $L = 0$ its probability would be 1, and every key would get a gradient from a query that is none. $2^{0 - \infty} = 0$ makes both harmless.
  if (lane == 0) {
    const float l = is_row ? lse[int64_t(head) * problem.seqlen_q + row] : -INFINITY;
    workspace.d[at] = sum;
    workspace.lse[at] = l == -INFINITY ? INFINITY : l * kLog2e;
  }
  if constexpr (kClearsDq) {
    float4* const dq = reinterpret_cast<float4*>(workspace.dq + at * kHeadDim) + lane;
    dq[0] = dq[kLanes] = make_float4(0, 0, 0, 0);
  }
}

//| ## The launch
//|
//| One thread of the grid for each 16 bytes of a row. The order of the launches on one stream is the only synchronisation that the later kernels need.
/// Launches `prepare` for tiles of `tile` queries. Static, as the simulator has kernels with bounds.
template <typename T, int kHeadDim, bool kClearsDq>
static void run_prepare(const Shape& shape, const Tensors& tensors, device::Stream stream, int tile) {
  const Problem problem = problem_of(shape, tile);
  const int64_t rows = int64_t(shape.batch) * shape.heads * problem.padded_q;
  constexpr int kRowsOfBlock = kPrepareThreads / (kHeadDim / 8);
  device::launch(prepare<T, kHeadDim, kClearsDq>, dim3((rows + kRowsOfBlock - 1) / kRowsOfBlock),
                 dim3(kPrepareThreads), 0, stream, static_cast<const T*>(tensors.o),
                 static_cast<const T*>(tensors.d_o), static_cast<const float*>(tensors.lse),
                 workspace_of(shape, tile, tensors), rows, problem);
}

}  // namespace flashbook::backward
