//| # Step 6 at d = 256: two warps share their rows
//|
//| At d = 256 a warp cannot own 32 rows: $O$ alone would be 256 registers per thread, and an instruction can
//| address only 255. With 16 rows, every byte of K and V that comes from shared memory serves half as many
//| products. A warp's tile of 64 keys then reads 64 KB of K and V and 8 KB of Q for 256 `mma.sync`. At 6.3
//| clocks each these take 1610 clocks on the warp's tensor core. Its quarter of shared memory, 32 bytes per
//| clock, delivers 72 KB in 2300: 1.4 times as long.
//|
//| So two warps share 32 rows. For the scores they split the keys: each multiplies all 32 rows by its 32
//| keys. For $O$ they split the dims: each owns 128 of 256, and needs *all* probabilities. So each stores its
//| own for the other to read.
//|
//| ![A pair of warps: halves of the keys for the scores, halves of the dims for
//| O](../../docs/figures/paired_warps.svg)
//|
//| Bytes per warp and tile: K 16 KB, Q 16, V 16, P 4, together 52 instead of 72 KB. The price is what split-Q
//| avoided, but within a pair only: maxima and probabilities pass through shared memory. Both exchanges use
//| barriers that are needed anyway. There is one stage of K and one of V, and each next tile is copied as
//| soon as all warps are done with the last.
//|
//| **Budget**: Q, K, V 32 KB each, P 8 KB, maxima 0.5 KB: 104.5 KB, two blocks per multiprocessor. Registers:
//| O 128, scores 32.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

/// The sizes of the paired kernel.
struct PairedTraits {
  static constexpr int kHeadDim = 256, kQueries = 64, kKeys = 64;  // kQueries per block, kKeys per tile
  static constexpr int kThreads = 128;                             // two pairs of warps
  static constexpr int kPairRows = 32;                             // rows that two warps share
  static constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kKeys * kRowBytes;
  static constexpr int kBytesP = kQueries * kKeys * 2, kBytesExchange = 2 * kQueries * sizeof(float);
  static constexpr int kSharedBytes = kQueries * kRowBytes + 2 * kTileBytes + kBytesP + kBytesExchange;
};

//| ## The kernel
//|
//| Four warps are two pairs. `side` is a warp's place in its pair, `pair_row` the first of the pair's 32
//| rows.
/// Computes attention at d = 256 by pairs of warps. Grid: (queries / 64, batch * heads); dynamic shared
/// memory: PairedTraits::kSharedBytes.
template <typename T>
__global__ void __launch_bounds__(PairedTraits::kThreads, 2)
    paired(const T* q,  // [batch * heads, seqlen_q, 256]
           const T* k,  // [batch * kv_heads, seqlen_k, 256]
           const T* v,  // [batch * kv_heads, seqlen_k, 256]
           T* o,        // [batch * heads, seqlen_q, 256]
           float* lse,  // [batch * heads, seqlen_q]
           Problem problem) {
  using Traits = PairedTraits;
  constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys, kHalfKeys = kKeys / 2,
                kHalfDim = kHeadDim / 2;
  const int lane = threadIdx.x % 32, side = threadIdx.x / 32 % 2,
            pair_row = threadIdx.x / 64 * Traits::kPairRows;
  // Longest first, and no tile that no row sees: as in step 5.
  const int first_query = (gridDim.x - 1 - blockIdx.x) * Traits::kQueries;
  const int valid_rows = problem.seqlen_q - first_query;
  const int tiles =
      (problem.visible_keys(first_query + min(Traits::kQueries, valid_rows) - 1) + kKeys - 1) / kKeys;

  //| Shared memory holds Q, K, V, P, and for every row two floats to exchange, one from each side. This warp
  //| leaves its maxima at `mine`, and finds those of the other warp at `theirs`. Both point at this lane's
  //| upper row.
  unsigned char* q_tile = dynamic_shared<unsigned char>();                // [kQueries, kHeadDim], then O
  unsigned char* k_tile = q_tile + Traits::kQueries * Traits::kRowBytes;  // [kKeys, kHeadDim]
  unsigned char* v_tile = k_tile + Traits::kTileBytes;                    // [kKeys, kHeadDim]
  unsigned char* p_tile = v_tile + Traits::kTileBytes;                    // [kQueries, kKeys]
  float* exchange = reinterpret_cast<float*>(p_tile + Traits::kBytesP);   // [side][kQueries]
  float* mine = exchange + side * Traits::kQueries + pair_row + lane / 4;
  const float* theirs = exchange + (1 - side) * Traits::kQueries + pair_row + lane / 4;
  k += problem.k_row(blockIdx.y) * kHeadDim;
  v += problem.k_row(blockIdx.y) * kHeadDim;

  copy_tile<true, Traits::kQueries, kHeadDim, Traits::kThreads>(
      q_tile, q + (problem.q_row(blockIdx.y) + first_query) * kHeadDim, valid_rows);
  if (tiles > 0)
    copy_rows<kKeys, kHeadDim, Traits::kThreads>(k_tile, k, (tiles - 1) * kKeys, problem.seqlen_k);
  cp_async_commit();

  Blocks<2, kHalfDim / 8> out = {};  // this side's dims
  RowState<2> rows;                  // the pair's maxima, the sums over this side's keys
  clear(rows);

  //| ## One tile, three barriers
  //|
  //| Each of the three barriers has two purposes, and each copy starts right after the barrier that frees its
  //| place:
  //|
  //| 1. K has arrived, and the old V and P have been read: *V starts*.
  //| 2. The maxima are stored, and K has been read: *the next K starts*.
  //| 3. V has arrived, and P is stored.
  //|
  //| So K is in flight during the softmax and the second product, V during the first product.
  const auto process_tile = [&]<bool kMasked>(int tile) {
    cp_async_wait<0>();
    __syncthreads();  // K has arrived; no warp still reads the previous V or P
    copy_rows<kKeys, kHeadDim, Traits::kThreads>(v_tile, v, tile * kKeys, problem.seqlen_k);
    cp_async_commit();

    //| Scores of 32 rows by this side's 32 keys. Key 0 of side 1 is key 32 of the tile: the tile's address
    //| and the mask begin there.
    Blocks<2, kHalfKeys / 8> scores;  // this side's keys
    multiply_keys<T, kHeadDim, 0, kHalfKeys / 8>(
        scores, k_tile + side * kHalfKeys * Traits::kRowBytes,
        [&](uint32_t(&a)[2][4], int step) { load_rows<kHeadDim>(a, q_tile, pair_row, step); });
    if (kMasked) mask(scores, problem, first_query + pair_row, tile * kKeys + side * kHalfKeys);
    float maxima[2][2];
    row_maxima(maxima, scores, rows);
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (lane % 4 == 0) mine[r * 16 + half * 8] = maxima[r][half];
    //| A row's maximum over *its* 32 keys is half of the answer. One lane in four stores it; after the
    //| barrier, each side takes the larger of the two. `rescale` then sees equal numbers on both sides, so
    //| both rescale or both do not: their halves of $O$ stay relative to one maximum.
    __syncthreads();  // the other side's maxima are stored, and all warps are done with K
    if (tile > 0)
      copy_rows<kKeys, kHeadDim, Traits::kThreads>(k_tile, k, (tile - 1) * kKeys, problem.seqlen_k);
    cp_async_commit();

#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        maxima[r][half] = fmaxf(maxima[r][half], theirs[r * 16 + half * 8]);
    rescale<kMasked>(maxima, out, rows, problem.scale_log2e);  // both sides see the same and decide the same
    float offsets[2][2];
    subtract_maxima<kMasked, true>(offsets, scores, rows, problem.scale_log2e);
    exponentiate<0, kHalfKeys / 8>(scores, offsets, rows.sum, problem.scale_log2e);

    //| P is stored swizzled, in the shape of a tile of Q with keys in place of dims: 64 rows of 128 bytes.
    //| The other warp of the pair then reads it with `load_rows`, the function that reads Q.
    uint32_t p[kHalfKeys / 16][2][4];
#pragma unroll
    for (int step = 0; step < kHalfKeys / 16; ++step) {
      round_probabilities<T>(p[step], scores, step);
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = pair_row + r * 16 + i % 2 * 8 + lane / 4;
          const int piece = side * kHalfKeys / 8 + step * 2 + i / 2;
          *reinterpret_cast<uint32_t*>(p_tile + swizzled<kKeys * 2>(row, piece) + lane % 4 * 4) =
              p[step][r][i];
        }
    }
    //| Two groups may be in flight here: V, and behind it the next K. `wait<1>` leaves the newest in flight,
    //| which is K.
    cp_async_wait<1>();
    __syncthreads();  // V has arrived, though not the next K; the other side's probabilities are stored

    //| $O \mathrel{+}= PV$ for this side's 128 dims and all 64 keys. The first half of P is still in
    //| registers; the other half comes from the other warp.
    const unsigned char* v_dims = v_tile + side * kHalfDim * 2;
#pragma unroll
    for (int step = 0; step < kHalfKeys / 16; ++step)
      multiply_values<T, kHeadDim>(out, p[step], v_dims + (side * kHalfKeys + step * 16) * Traits::kRowBytes);
#pragma unroll
    for (int step = 0; step < kHalfKeys / 16; ++step) {
      const int key = (1 - side) * kHalfKeys + step * 16;
      uint32_t other[2][4];
      load_rows<kKeys>(other, p_tile, pair_row, key / 16);
      multiply_values<T, kHeadDim>(out, other, v_dims + key * Traits::kRowBytes);
    }
  };
  //| As in step 5, masked tiles first. Here the first tile may be unmasked, because `rescale` looks at the
  //| maximum in every tile.
  int tile = tiles - 1;
#pragma unroll 1
  for (; tile >= 0 && (tile + 1) * kKeys > problem.visible_keys(first_query); --tile)
    process_tile.template operator()<true>(tile);
#pragma unroll 1
  for (; tile >= 0; --tile) process_tile.template operator()<false>(tile);

  //| ## The end
  //|
  //| Each side has summed only its own keys. The sums are exchanged like the maxima, and each side divides
  //| its own dims. Side 0 writes the log-sum-exp.
  cp_async_wait_all();
  __syncthreads();  // all are done with Q (or it has arrived, if no key was visible) and the exchange
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.sum[r][half] = row_total(rows.sum[r][half]);
      if (lane % 4 == 0) mine[r * 16 + half * 8] = rows.sum[r][half];
    }
  __syncthreads();  // the other side's sums are stored
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = rows.sum[r][half] + theirs[r * 16 + half * 8];
      const int row = pair_row + r * 16 + half * 8 + lane / 4;
      if (side == 0 && lane % 4 == 0 && row < valid_rows)
        lse[problem.q_row(blockIdx.y) + first_query + row] =
            log_sum_exp(rows.max[r][half], sum, problem.scale);
      normalize(out[r], half, sum);
    }
  store_out<T, kHeadDim>(out, q_tile, pair_row, side * kHalfDim,
                         o + (problem.q_row(blockIdx.y) + first_query) * kHeadDim, valid_rows);
}

}  // namespace flashbook::fa2
