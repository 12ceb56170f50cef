//| # Step 2: ldmatrix, swizzled
//|
//| Step 1 reads its operands with eight-way bank conflicts, and V's in two pieces as well. Here one
//| `ldmatrix` replaces 4 or 8 loads, and rows are stored swizzled, so that no two rows of a matrix share a
//| bank. [warp_tile.cuh](warp_tile.cuh) has the two products that load this way.
//|
//| **Budget** at d = 128: as in step 1.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

//| Only the place of each piece differs from step 1's copy.
/// Copies a tile of kTile rows through registers into a swizzled tile; rows from `valid_rows` on become
/// zeros.
template <int kHeadDim, typename T>
__device__ __forceinline__ void copy_swizzled(unsigned char* tile,
                                              const T* rows,  // [valid_rows, kHeadDim]
                                              int valid_rows) {
  constexpr int kRowBytes = kHeadDim * 2, kPieces = kRowBytes / 16;
#pragma unroll 4
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const uint4 value =
        row < valid_rows ? reinterpret_cast<const uint4*>(rows + row * kHeadDim)[piece] : uint4{};
    *reinterpret_cast<uint4*>(tile + swizzled<kRowBytes>(row, piece)) = value;
  }
}

//| ## The kernel

/// Computes attention by split queries, with operands by ldmatrix from swizzled tiles. Grid: (queries / 64,
/// batch * heads); dynamic shared memory: 3 tiles of kTile x kHeadDim.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    ldmatrix_swizzled(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                      const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                      const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                      T* o,        // [batch * heads, seqlen_q, kHeadDim]
                      float* lse,  // [batch * heads, seqlen_q]
                      Problem problem) {
  constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kTile * kRowBytes;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int head = blockIdx.y, first_query = blockIdx.x * kTile, valid_rows = problem.seqlen_q - first_query;
  const int tiles = ceil_div(problem.seqlen_k, kTile);

  unsigned char* q_tile = dynamic_shared<unsigned char>();  // [kTile, kHeadDim], then O
  unsigned char* k_tile = q_tile + kTileBytes;              // [kTile, kHeadDim]
  unsigned char* v_tile = k_tile + kTileBytes;              // [kTile, kHeadDim]
  q += (problem.q_row(head) + first_query) * kHeadDim;
  o += (problem.q_row(head) + first_query) * kHeadDim;
  k += problem.k_row(head) * kHeadDim;
  v += problem.k_row(head) * kHeadDim;
  const auto load = [&](int tile) {
    const int valid = problem.seqlen_k - tile * kTile;
    copy_swizzled<kHeadDim>(k_tile, k + int64_t(tile) * kTile * kHeadDim, valid);
    copy_swizzled<kHeadDim>(v_tile, v + int64_t(tile) * kTile * kHeadDim, valid);
  };

  copy_swizzled<kHeadDim>(q_tile, q, valid_rows);
  Blocks<1, kHeadDim / 8> out = {};
  RowState<1> rows;
  clear(rows);
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();  // no warp still reads the previous tile
    load(tile);
    __syncthreads();  // the tile has arrived, and Q

    Blocks<1, kTile / 8> scores;
    multiply_keys<T, kHeadDim, 0, kTile / 8>(scores, k_tile, [&](uint32_t(&a)[1][4], int step) {
      load_rows<kHeadDim>(a, q_tile, warp_row, step);
    });
    mask(scores, problem, first_query + warp_row, tile * kTile);
    normalized_softmax(scores, out, rows, problem.scale);

#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {
      uint32_t p[1][4];
      round_probabilities<T>(p, scores, step);
      multiply_values<T, kHeadDim>(out, p, v_tile + step * 16 * kRowBytes);
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + half * 8 + lane / 4;
    if (lane % 4 == 0 && row < valid_rows)
      lse[problem.q_row(head) + first_query + row] = log_sum_exp(rows.max[0][half], rows.sum[0][half], 1.0f);
  }
  store_out<T, kHeadDim>(out, q_tile, warp_row, 0, o, valid_rows);
}

}  // namespace flashbook::fa2
