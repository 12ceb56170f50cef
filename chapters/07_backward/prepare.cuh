//| # The workspace, and the kernel that fills it
//|
//| [`gradient_prepare.h`](../../common/hopper/gradient_prepare.h) explains what is computed here, and why:
//| each query's $D$ and log-sum-exp. This file has the layout of both, and launches the kernel.
//|
//| ![The five products of a tile and where their operands lie](../../docs/figures/backward_products.svg)
#pragma once
#include "chapters/07_backward/problem.cuh"
#include "common/attention/tensors.h"
#include "common/device/launch.h"

namespace flashbook::backward {

using Workspace = GradientWorkspace;

/// Rows of a workspace for tiles of `tile` queries.
inline int64_t workspace_rows(const Spec& spec, int tile) {
  return int64_t(spec.batch) * spec.heads * problem_of(spec, tile).padded_q;
}

/// Returns the bytes of a workspace for tiles of `tile` queries.
inline int64_t bytes_of_workspace(const Spec& spec, int tile, bool adds_dq) {
  return workspace_rows(spec, tile) * int64_t(sizeof(float)) *
         (2 + (adds_dq ? tile_columns(spec.head_dim) : 0));
}

/// Returns the parts of the workspace of `tensors`.
inline Workspace workspace_of(const Spec& spec, int tile, const Tensors& tensors) {
  const int64_t rows = workspace_rows(spec, tile);
  float* const first = static_cast<float*>(tensors.workspace);
  return {first, first + rows, first + 2 * rows};
}

//| If blocks share a key head, they add to dK and dV, too, in float32 as to dQ.
/// Sums of dK and dV, [batch * kv_heads, padded_k, columns of a tile] each, dV's behind dK's.
struct KeySums {
  float* dk = nullptr;  ///< null: one block sums a key head's whole group, in registers
  float* dv = nullptr;
  int padded_k = 0;    ///< keys per head, in whole tiles
  int64_t floats = 0;  ///< of each
};

//| ## The kernel
//|
//| A thread finds its row of the workspace, and the query's rows of O and dO by their strides. The workspace
//| also has rows past the last query, because each head has whole tiles there. The counters of later kernels
//| must begin at 0. There are fewer of them than threads here, so the first threads set one each, which saves
//| a launch.
/// Computes D, and the log-sum-exp in the kernels' units, for every row of the workspace. Clears
/// `workspace.dq` if kClearsDq, `counts` counters, and `key_sums`. kHeadDim / 8 lanes share a row. Grid:
/// (rows of workspace.d / rows of a block).
template <typename T, int kHeadDim, bool kClearsDq>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare(const T* o,          // [batch, heads, seqlen_q, kHeadDim], strides problem.at.o
            const T* d_o,        // [batch, heads, seqlen_q, kHeadDim], strides problem.at.d_o
            const float* lse,    // [batch * heads, seqlen_q]
            const float* d_lse,  // [batch * heads, seqlen_q], the gradient of the log-sum-exp; null: 0
            Workspace workspace, int64_t rows, Problem problem,
            int* counters,  // [counts]
            int64_t counts, KeySums key_sums) {
  const int64_t thread = int64_t(blockIdx.x) * kPrepareThreads + threadIdx.x;
  if (thread < counts) counters[thread] = 0;
  const int64_t threads = int64_t(gridDim.x) * kPrepareThreads;
  for (int64_t i = thread; i < key_sums.floats / 2; i += threads)  // dK's, and dV's behind them
    reinterpret_cast<float4*>(key_sums.dk)[i] = make_float4(0, 0, 0, 0);
  const int64_t at = thread / (kHeadDim / 8);
  const int head = int(at / problem.padded_q), row = int(at % problem.padded_q);
  prepare_row<T, kHeadDim, kClearsDq>(
      workspace, at, at < rows, at < rows && row < problem.seqlen_q,
      [&] { return o + problem.query_offset(problem.at.o, head, row); },
      [&] { return d_o + problem.query_offset(problem.at.d_o, head, row); },
      [&] { return lse[int64_t(head) * problem.seqlen_q + row]; },
      [&] { return d_lse == nullptr ? 0 : d_lse[int64_t(head) * problem.seqlen_q + row]; }, 0,
      problem.head_dim);
}

//| ## The launch
//|
//| Each thread handles 16 bytes of a row. The order of the launches on one stream is the only synchronisation
//| that the later kernels need.
/// Launches `prepare` for tiles of `tile` queries and `counts` counters. Static, because the simulator has
/// kernels with bounds.
template <typename T, int kHeadDim, bool kClearsDq>
static void run_prepare(const Spec& spec, const Tensors& tensors, device::Stream stream, int tile,
                        int* counters = nullptr, int64_t counts = 0, const KeySums& key_sums = {}) {
  const int64_t rows = workspace_rows(spec, tile);
  constexpr int kRowsPerBlock = kPrepareRows<kHeadDim>;
  device::launch(prepare<T, kHeadDim, kClearsDq>, dim3(ceil_div(rows, kRowsPerBlock)), dim3(kPrepareThreads),
                 0, stream, static_cast<const T*>(tensors.o), static_cast<const T*>(tensors.d_o),
                 static_cast<const float*>(tensors.lse), tensors.d_lse, workspace_of(spec, tile, tensors),
                 rows, problem_of(spec, tile), counters, counts, key_sums);
}

}  // namespace flashbook::backward
