//| # Step 5: tuned tiles
//|
//| Step 4 is limited by shared memory: with 16 rows per warp, a tile needs 1408 wavefronts, 1.7 times as many
//| clocks as its products take. Here a warp owns 32 rows where registers allow it. The rest of step 5 avoids
//| unnecessary work:
//|
//| * Under a causal mask, tiles of keys that no row of the block sees are skipped: half of them in a long
//|   sequence.
//| * Only tiles that the mask cuts, by the diagonal or the end of the keys, pay for comparisons.
//| * Blocks that see the most keys [start first](appendix.md#one-switch-at-a-time). This gains 1 % at most.
//| * Blocks of one head are neighbours in the grid, so they read its K and V from the L2 cache at about the
//|   same time.
//|
//| ![Causal tiles: skipped, masked, plain; and the order in which blocks take
//| them](../../docs/figures/tile_classes.svg)
//|
//| **Budget**: d = 64: Q 16 KB and two stages of K and V 32 KB; registers: O 64, Q 32, scores 64. d = 128: 32
//| + 64 KB; O 128, scores 64. Two blocks of four warps per multiprocessor. d = 256, step 5: eight warps of 16
//| rows, 64 + 128 KB, one block.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

//| ## The sizes
//|
//| All choices of a kernel form one type, so that the compiler knows them. Slower choices are in the
//| [appendix](appendix.md#what-was-tried).
/// The sizes of a tuned kernel.
struct TunedSizes {
  int head_dim;
  int warps = 4;              ///< per block
  int row_blocks = 2;         ///< 16-row blocks that a warp owns
  bool keep_queries = false;  ///< Q in registers, or read again with every tile
  int blocks_per_sm = 2;      ///< resident blocks, which must also fit in registers
  int keys = 64;              ///< per tile: more scores would not fit in registers
};

/// The sizes, and what follows from them.
template <TunedSizes kSizes>
struct KernelTraits {
  static constexpr int kHeadDim = kSizes.head_dim, kWarps = kSizes.warps, kRowBlocks = kSizes.row_blocks;
  static constexpr bool kKeepQueries = kSizes.keep_queries;
  static constexpr int kBlocksPerSm = kSizes.blocks_per_sm, kKeys = kSizes.keys;
  static constexpr bool kLongestFirst = true;  // the last queries are the first block's
  static constexpr bool kSkipsHidden = true;   // tiles of keys that no row sees are skipped
  static constexpr bool kSplitLoops = true;    // tiles that the mask does not cut are not masked
  static constexpr int kThreads = kWarps * 32, kWarpRows = kRowBlocks * 16, kQueries = kWarps * kWarpRows;
  static constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kKeys * kRowBytes;
  static constexpr int kSharedBytes = kQueries * kRowBytes + 4 * kTileBytes;  // Q, two stages of K and V
};

//| ## The kernel
/// Grid: (query tiles, batch * heads); dynamic shared memory: Traits::kSharedBytes.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocksPerSm)
    tuned(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
          const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
          const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
          T* o,        // [batch * heads, seqlen_q, kHeadDim]
          float* lse,  // [batch * heads, seqlen_q]
          Problem problem) {
  constexpr int kHeadDim = Traits::kHeadDim, kRowBlocks = Traits::kRowBlocks, kKeys = Traits::kKeys,
                kSteps = kHeadDim / 16;
  constexpr int kKeyBlocks = kKeys / 8;
  //| **Longest first.** Block 0 takes the *last* queries. The hardware starts blocks in the order of their
  //| numbers, so under a causal mask the longest blocks start first.
  //|
  //| **Which tiles.** The last valid row sees the most keys. Tiles beyond them are skipped; if the block sees
  //| none, `tiles` is 0.
  const int warp_row = threadIdx.x / 32 * Traits::kWarpRows;
  const int first_query =
      (Traits::kLongestFirst ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * Traits::kQueries;
  const int valid_rows = problem.seqlen_q - first_query;
  // Skip key tiles that no row sees; mask only those that some row does not see in full, such as the tiles
  // on the diagonal.
  const int seen = Traits::kSkipsHidden
                       ? problem.visible_keys(first_query + min(Traits::kQueries, valid_rows) - 1)
                       : problem.seqlen_k;
  const int tiles = (seen + kKeys - 1) / kKeys;

  //| Places in shared memory are as in step 3.
  unsigned char* q_tile = dynamic_shared<unsigned char>();  // [kQueries, kHeadDim], then O
  unsigned char* stages =
      q_tile + Traits::kQueries * Traits::kRowBytes;  // 2 x {K [kKeys, kHeadDim], V the same}
  const auto k_tile = [&](int tile) { return stages + tile % 2 * 2 * Traits::kTileBytes; };
  const auto v_tile = [&](int tile) { return k_tile(tile) + Traits::kTileBytes; };
  q += (problem.q_row(blockIdx.y) + first_query) * kHeadDim;
  k += problem.k_row(blockIdx.y) * kHeadDim;
  v += problem.k_row(blockIdx.y) * kHeadDim;
  const auto load = [&](int tile) {
    copy_keys_and_values<kKeys, kHeadDim, Traits::kThreads>(k_tile(tile), v_tile(tile), k, v, tile * kKeys,
                                                            problem.seqlen_k);
  };

  copy_tile<true, Traits::kQueries, kHeadDim, Traits::kThreads>(q_tile, q, valid_rows);
  if (tiles > 0) load(tiles - 1);
  cp_async_commit();

  //| At $d = 64$ the warp's Q fits into 32 registers: it is read from shared memory once instead of with
  //| every tile. Only in this case must the kernel wait before the loop. `queries` hides the difference from
  //| `multiply_keys`.
  uint32_t kept[Traits::kKeepQueries ? kSteps : 1][kRowBlocks][4];
  if constexpr (Traits::kKeepQueries) {
    cp_async_wait<0>();
    __syncthreads();  // Q has arrived: all threads copied a part of it
#pragma unroll
    for (int step = 0; step < kSteps; ++step) load_rows<kHeadDim>(kept[step], q_tile, warp_row, step);
  }
  const auto queries = [&](uint32_t(&a)[kRowBlocks][4], int step) {
    if constexpr (Traits::kKeepQueries) {
#pragma unroll
      for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[r][i] = kept[step][r][i];
    } else {
      load_rows<kHeadDim>(a, q_tile, warp_row, step);
    }
  };

  Blocks<kRowBlocks, kHeadDim / 8> out = {};
  RowState<kRowBlocks> rows;
  clear(rows);

  //| ## One tile
  //|
  //| `process_tile` is the body of the loop, compiled twice: with the mask and without. `tile + 1` was the
  //| previous tile, since keys are visited from the last to the first. The wait and the barrier are those of
  //| step 3.
  const auto process_tile = [&]<bool kMasked>(int tile) {
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and no warp still reads the stage that the next one will
                      // overwrite
    if (tile > 0) load(tile - 1);
    cp_async_commit();

    Blocks<kRowBlocks, kKeyBlocks> scores;
    multiply_keys<T, kHeadDim, 0, kKeyBlocks>(scores, k_tile(tile), queries);
    //| The order is step 4's: mask, maxima, rescaling if necessary, exponentials. `kMasked` also tells
    //| whether a row may still be without a key, which costs a comparison.
    const auto softmax = [&] {
      if (kMasked) mask(scores, problem, first_query + warp_row, tile * kKeys);
      float maxima[kRowBlocks][2], offsets[kRowBlocks][2];
      row_maxima(maxima, scores, rows);
      rescale<kMasked>(maxima, out, rows, problem.scale_log2e);
      subtract_maxima<kMasked, kHeadDim != 128>(offsets, scores, rows, problem.scale_log2e);
      exponentiate<0, kKeyBlocks>(scores, offsets, rows.sum, problem.scale_log2e);
    };
    softmax();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t p[kRowBlocks][4];
      round_probabilities<T>(p, scores, step);
      multiply_values<T, kHeadDim>(out, p, v_tile(tile) + step * 16 * Traits::kRowBytes);
    }
  };
  //| The first tile is always masked, even where the mask cuts nothing: it sets the maxima, so that in the
  //| other loop every row has seen a key. Then come the other tiles that the diagonal cuts, then the rest.
  //| `#pragma unroll 1` keeps the compiler from copying this long body.
  int tile = tiles - 1;
  // Masked: the first tile, which fixes the maxima, and those with keys that the first row does not see.
  if (tile >= 0) {
#pragma unroll 1
    do process_tile.template operator()<true>(tile);
    while (--tile >= 0 && (!Traits::kSplitLoops || (tile + 1) * kKeys > problem.visible_keys(first_query)));
  }
#pragma unroll 1
  for (; tile >= 0; --tile) process_tile.template operator()<false>(tile);

  //| ## The end
  //|
  //| The rows' sums are completed, and $O$ is stored through Q's tile. In a block that saw no key, Q is still
  //| in flight here, hence the wait.
  cp_async_wait_all();
  __syncthreads();  // if the block saw no key: all of Q must arrive before O overwrites it
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = row_total(rows.sum[r][half]);
      const int row = warp_row + r * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < valid_rows)
        lse[problem.q_row(blockIdx.y) + first_query + row] =
            log_sum_exp(rows.max[r][half], sum, problem.scale);
      normalize(out[r], half, sum);
    }
  store_out<T, kHeadDim>(out, q_tile, warp_row, 0, o + (problem.q_row(blockIdx.y) + first_query) * kHeadDim,
                         valid_rows);
}

}  // namespace flashbook::fa2
