//| # Step 1, first kernel: dQ
//|
//| A block owns a tile of queries and loops over the keys. It is chapter 4's forward kernel with one more
//| product, and without the difficult part of a softmax: the log-sum-exp is final, so there is no running
//| maximum, nothing is rescaled, and the order of the tiles does not matter.
//|
//| For each tile of keys: $S = QK^\top$, $P = e^{S - L}$, $dP = dO\,V^\top$, $dS = P \circ (dP - D)$,
//| $dQ \mathrel{+}= dS\,K$. That is three products. A row needs only two numbers, $L$ and $D$, which each
//| lane keeps for its rows.
//|
//| ![Two passes and one pass over the same tiles](../../docs/figures/backward_loops.svg)
//|
//| **Budget**, $d = 128$: Q and dO take 16 KB each, two stages of K and V 64 KB, 96 KB together: two blocks
//| of four warps per multiprocessor. Registers: dQ 64, S and dP 32 each. With 32 rows per warp, operands
//| would be read half as often. A sweep on an H200 found that faster, but the compiler spilled registers in
//| the loop, which no kernel of the book does.
//|
//| **The same bits every time.** No other block writes these rows, and the order of the tiles is fixed.
#pragma once
#include "chapters/07_backward/warp_tile.cuh"

namespace flashbook::backward {

//| ## The sizes
//|
//| A warp owns 16 or 32 queries and all dims of their dQ. At $d = 256$ dQ alone takes 128 registers per
//| thread, which leaves space for tiles of 32 keys.
/// The sizes of step 1's kernel for dQ.
struct QuerySizes {
  int head_dim;
  int warps = 4;          ///< per block
  int row_blocks = 1;     ///< blocks of 16 queries per warp
  int keys = 32;          ///< per tile
  int blocks_per_sm = 2;  ///< resident blocks, which must also fit in registers
};

/// The sizes, and what follows from them.
template <QuerySizes kSizes>
struct QueryKernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim, kWarps = kSizes.warps, kRowBlocks = kSizes.row_blocks;
  static constexpr int kKeys = kSizes.keys, kBlocksPerSm = kSizes.blocks_per_sm;
  static constexpr int kThreads = kWarps * 32, kWarpRows = kRowBlocks * 16, kQueries = kWarps * kWarpRows;
  static constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kKeys * kRowBytes;
  static constexpr int kSharedBytes = 2 * kQueries * kRowBytes + 4 * kTileBytes;  // Q, dO; 2 x {K, V}
};

/// Computes a tile of dQ. Grid: (query tiles * query heads); dynamic shared memory: Traits::kSharedBytes.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocksPerSm)
    queries_outside(const T* q,        // [batch, heads, seqlen_q, kHeadDim]
                    const T* k,        // [batch, kv_heads, seqlen_k, kHeadDim]
                    const T* v,        // [batch, kv_heads, seqlen_k, kHeadDim]
                    const T* d_o,      // [batch, heads, seqlen_q, kHeadDim]
                    const float* lse,  // [batch * heads, padded_q], in the workspace
                    const float* d,    // [batch * heads, padded_q]
                    T* dq,             // [batch, heads, seqlen_q, kHeadDim]
                    Problem problem) {
  //| ## Where the block is
  //|
  //| Blocks with the last queries start first: under a causal mask they see the most keys, and short ones
  //| fill the gaps at the end. If the last of the block's queries sees no key, `tiles` is 0, and the block
  //| only writes zeros.
  constexpr int kHeadDim = Traits::kHeadDim, kRowBlocks = Traits::kRowBlocks, kKeys = Traits::kKeys;
  const int query_tiles = (problem.seqlen_q + Traits::kQueries - 1) / Traits::kQueries;
  const int head = blockIdx.x / query_tiles, kv_head = head / problem.group;
  const int first_query = (query_tiles - 1 - int(blockIdx.x) % query_tiles) * Traits::kQueries;
  const int valid_rows = problem.seqlen_q - first_query;
  const int last_key = problem.last_key(first_query + min(Traits::kQueries, valid_rows) - 1);
  const int tiles = last_key < 0 ? 0 : last_key / kKeys + 1;

  //| Q and dO stay in shared memory for the whole block. Two stages of K and V alternate: while one is used,
  //| the next tile is in flight.
  const int warp_row = threadIdx.x / 32 * Traits::kWarpRows, lane = threadIdx.x % 32;
  unsigned char* q_tile = dynamic_shared<unsigned char>();                 // [kQueries, kHeadDim], then dQ
  unsigned char* do_tile = q_tile + Traits::kQueries * Traits::kRowBytes;  // [kQueries, kHeadDim]
  unsigned char* stages =
      do_tile + Traits::kQueries * Traits::kRowBytes;  // 2 x {K [kKeys, kHeadDim], V the same}
  const auto load = [&](int tile) {
    unsigned char* const stage = stages + tile % 2 * 2 * Traits::kTileBytes;
    const int first = tile * kKeys, valid = problem.seqlen_k - first;
    copy_tile<kKeys, kHeadDim, Traits::kThreads>(stage, k + problem.key_offset(problem.at.k, kv_head, first),
                                                 problem.at.k.row, valid);
    copy_tile<kKeys, kHeadDim, Traits::kThreads>(stage + Traits::kTileBytes,
                                                 v + problem.key_offset(problem.at.v, kv_head, first),
                                                 problem.at.v.row, valid);
  };
  copy_tile<Traits::kQueries, kHeadDim, Traits::kThreads>(
      q_tile, q + problem.query_offset(problem.at.q, head, first_query), problem.at.q.row, valid_rows);
  copy_tile<Traits::kQueries, kHeadDim, Traits::kThreads>(
      do_tile, d_o + problem.query_offset(problem.at.d_o, head, first_query), problem.at.d_o.row, valid_rows);
  if (tiles > 0) load(0);
  cp_async_commit();

  //| **Two numbers per row.** A lane has results of two rows in each row block, so it keeps their
  //| log-sum-exps and their $D$. Rows past the last query read the padding of the workspace, $L = +\infty$
  //| and $D = 0$: their dS is 0, and they are not stored.
  float row_lse[kRowBlocks][2], row_d[kRowBlocks][2];
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_query + warp_row + r * 16 + half * 8 + lane / 4;
      const int64_t at = int64_t(head) * problem.padded_q + row;
      row_lse[r][half] = lse[at];
      row_d[r][half] = d[at];
    }

  //| ## One tile of keys
  //|
  //| The scores' registers are used three times: S, then P, then dS. `kMasked` compiles the loop's body
  //| twice, with and without the comparisons of the mask.
  Blocks<kRowBlocks, kHeadDim / 8> sums = {};
  const auto use = [&]<bool kMasked>(int tile) {
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and no warp still reads the stage that the next overwrites
    if (tile + 1 < tiles) load(tile + 1);
    cp_async_commit();
    const unsigned char* const k_tile = stages + tile % 2 * 2 * Traits::kTileBytes;

    //| S and dP are the same product of different tiles: Q with K, dO with V. Then each element takes one
    //| multiply-add, one `exp2`, one subtraction and one multiplication. There is no maximum, no vote and no
    //| rescaling, so a backward pass has less work around its products than a forward pass.
    Blocks<kRowBlocks, kKeys / 8> ds, dp;  // ds is S, then P, then dS
    multiply_rows<T, kHeadDim>(ds, q_tile + warp_row * Traits::kRowBytes, k_tile);
    multiply_rows<T, kHeadDim>(dp, do_tile + warp_row * Traits::kRowBytes, k_tile + Traits::kTileBytes);
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int last =
            problem.last_key(first_query + warp_row + r * 16 + half * 8 + lane / 4) - tile * kKeys;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& x = ds[r][n][2 * half + i];
            if (kMasked && n * 8 + lane % 4 * 2 + i > last) x = -INFINITY;
            x = exp2_approx(problem.scale_log2 * x - row_lse[r][half]);
            x *= dp[r][n][2 * half + i] - row_d[r][half];
          }
      }
//| dS, rounded to 16 bits, is the left operand of the third product. K is read again, this time by columns,
//| from the same tile.
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t a[kRowBlocks][4];
      round_blocks<T>(a, ds, step);
      multiply_columns<T, kHeadDim>(sums, a, k_tile + step * 16 * Traits::kRowBytes, 0);
    }
  };
  //| First come the tiles that all of the block's queries see, without a mask, then those that the diagonal
  //| or the end of the keys cuts.
  int tile = 0;
#pragma unroll 1
  for (; tile < tiles && tile * kKeys + kKeys - 1 <= problem.last_key(first_query); ++tile)
    use.template operator()<false>(tile);
#pragma unroll 1
  for (; tile < tiles; ++tile) use.template operator()<true>(tile);
  //| ## The end
  //|
  //| The scale of the scores is also a factor of dQ. It is applied here, once per element, instead of to
  //| every dS.
  cp_async_wait_all();
  __syncthreads();  // if the block saw no key: all of Q must arrive before dQ overwrites it
  store_blocks<T, kHeadDim>(sums, problem.scale, q_tile, warp_row, 0,
                            dq + problem.query_offset(problem.at.dq, head, first_query), problem.at.dq.row,
                            valid_rows);
}

}  // namespace flashbook::backward
