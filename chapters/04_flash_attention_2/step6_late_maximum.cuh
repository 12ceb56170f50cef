//| # Step 6 at d = 64: late maximum
//|
//| At d = 64 there are so few products per score that the non-matmul operations are the bottleneck: the
//| maximum, the multiply-add, `exp2`, the sum, the conversion. The maximum holds up the others: `fmaxf` runs
//| at half rate, and all exponentials wait for it. Step 6 takes the exponentials first, relative to the old
//| maximum, and looks at the sums afterwards. In pseudocode:
//|
//|     for each unmasked tile:
//|       for each group of 16 keys:                   # while other products still run
//|         scores = Q K^T of these keys
//|         p      = exp2(c * scores - c * old maximum)
//|         sums  += p
//|       if in every lane every sum <= 16 * 256:      # a vote of the warp
//|         row sums += sums                           # nearly always
//|       else:
//|         scores = Q K^T again                       # p has replaced them
//|         the old maximum rises, O is rescaled       # as in step 5
//|         p      = exp2(c * scores - c * new maximum)
//|       O += p V
//|
//| Why 16 * 256: a lane has 16 scores of a row in a tile. If their sum is larger, at least one exceeds $2^8$,
//| the slack. If it is not, no single one exceeds $2^{12}$, which every type here can hold. The sums are
//| computed anyway.
//|
//| **Budget**: as step 5 at d = 64.
#pragma once
#include <utility>

#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

/// The sizes of the kernel, as in step 5 at d = 64.
struct LateMaximumTraits {
  static constexpr int kHeadDim = 64, kWarps = 4, kRowBlocks = 2;  // 16-row blocks that a warp owns
  static constexpr int kKeys = 64;                                 // per tile
  static constexpr int kGroup = 2;  // key blocks whose exponentials follow their scores at once
  static constexpr int kThreads = kWarps * 32, kWarpRows = kRowBlocks * 16, kQueries = kWarps * kWarpRows;
  static constexpr int kRowBytes = kHeadDim * 2, kTileBytes = kKeys * kRowBytes;
  static constexpr int kSharedBytes = kQueries * kRowBytes + 4 * kTileBytes;  // Q, two stages of K and V
};

//| ## Exponentials before the maximum
//|
//| The fold over `kIndex` unrolls the groups, so that each has its own registers and the compiler can place
//| the exponentials of one group between the products of the next. A group is two key blocks, 16 keys.
//|
//| `kLimit` is the test: $2 \cdot 8$ scores of a row in a lane, times $2^8$. A NaN is not `<=` anything, so
//| it takes the slow path and yields NaN, as it must. The slow path multiplies again because the scores are
//| gone: their registers hold the probabilities.

/// Turns a tile's scores into probabilities, relative to the old maxima, kGroup key blocks at a time;
/// `multiply` computes a group's scores. Returns false if maxima are large, or a probability may exceed
/// 2^kSlack: then rows are unchanged, and the scores have to be computed again.
template <int kGroup, int kRowBlocks, int kKeyBlocks, typename Multiply>
__device__ __forceinline__ bool exponentiate_under_old_maxima(Blocks<kRowBlocks, kKeyBlocks>& scores,
                                                              RowState<kRowBlocks>& rows,
                                                              const Multiply& multiply, float scale_log2e) {
  constexpr float kLimit = 2 * kKeyBlocks * 256;
  static_assert(kSlack == 8, "the limit above is 2^kSlack for each of a lane's probabilities of a row");
  if (rows.large) return false;
  float sums[kRowBlocks][2] = {}, offsets[kRowBlocks][2];
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) offsets[r][half] = -rows.max[r][half] * scale_log2e;
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((multiply.template operator()<kIndex * kGroup, kGroup>(),
      exponentiate<kIndex * kGroup, kGroup>(scores, offsets, sums, scale_log2e)),
     ...);
  }
  (std::make_integer_sequence<int, kKeyBlocks / kGroup>());
  //| Only now is it known whether the old maxima were good enough; the whole warp takes the same branch.
  bool fits = true;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r) fits = fits && sums[r][0] <= kLimit && sums[r][1] <= kLimit;
  if (!__all_sync(kWarp, fits)) return false;
#pragma unroll
  for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) rows.sum[r][half] += sums[r][half];
  return true;
}

//| ## The kernel
/// Grid: (query tiles, batch * heads); dynamic shared memory: LateMaximumTraits::kSharedBytes.
template <typename T>
__global__ void __launch_bounds__(LateMaximumTraits::kThreads, 2)
    late_maximum(const T* q,  // [batch * heads, seqlen_q, kHeadDim]
                 const T* k,  // [batch * kv_heads, seqlen_k, kHeadDim]
                 const T* v,  // [batch * kv_heads, seqlen_k, kHeadDim]
                 T* o,        // [batch * heads, seqlen_q, kHeadDim]
                 float* lse,  // [batch * heads, seqlen_q]
                 Problem problem) {
  using Traits = LateMaximumTraits;
  constexpr int kHeadDim = Traits::kHeadDim, kRowBlocks = Traits::kRowBlocks, kKeys = Traits::kKeys,
                kSteps = kHeadDim / 16;
  constexpr int kKeyBlocks = kKeys / 8;
  // Longest first, and no tile that no row sees: as in step 5.
  const int warp_row = threadIdx.x / 32 * Traits::kWarpRows;
  const int first_query = (gridDim.x - 1 - blockIdx.x) * Traits::kQueries;
  const int valid_rows = problem.seqlen_q - first_query;
  const int tiles =
      (problem.visible_keys(first_query + min(Traits::kQueries, valid_rows) - 1) + kKeys - 1) / kKeys;

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

  uint32_t kept[kSteps][kRowBlocks][4];  // the warp's Q
  cp_async_wait<0>();
  __syncthreads();  // Q has arrived: all threads copied a part of it
#pragma unroll
  for (int step = 0; step < kSteps; ++step) load_rows<kHeadDim>(kept[step], q_tile, warp_row, step);
  const auto queries = [&](uint32_t(&a)[kRowBlocks][4], int step) {
#pragma unroll
    for (int r = 0; r < kRowBlocks; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[r][i] = kept[step][r][i];
  };

  Blocks<kRowBlocks, kHeadDim / 8> out = {};
  RowState<kRowBlocks> rows;
  clear(rows);

  //| ## One tile
  const auto process_tile = [&]<bool kMasked>(int tile) {
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and no warp still reads the stage that the next one will
                      // overwrite
    if (tile > 0) load(tile - 1);
    cp_async_commit();

    Blocks<kRowBlocks, kKeyBlocks> scores;
    //| `with_maximum` is step 5's order: scores, mask, maxima, rescaling if necessary, exponentials. It is
    //| used for masked tiles, large maxima and tiles whose test fails.
    const auto multiply = [&]<int kFirst, int kCount>() {
      multiply_keys<T, kHeadDim, kFirst, kCount>(scores, k_tile(tile), queries);
    };
    const auto with_maximum = [&] {
      multiply.template operator()<0, kKeyBlocks>();
      if (kMasked) mask(scores, problem, first_query + warp_row, tile * kKeys);
      float maxima[kRowBlocks][2], offsets[kRowBlocks][2];
      row_maxima(maxima, scores, rows);
      rescale<kMasked>(maxima, out, rows, problem.scale_log2e);
      subtract_maxima<kMasked, true>(offsets, scores, rows, problem.scale_log2e);
      exponentiate<0, kKeyBlocks>(scores, offsets, rows.sum, problem.scale_log2e);
    };
    if (kMasked ||
        !exponentiate_under_old_maxima<Traits::kGroup>(scores, rows, multiply, problem.scale_log2e))
      with_maximum();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t p[kRowBlocks][4];
      round_probabilities<T>(p, scores, step);
      multiply_values<T, kHeadDim>(out, p, v_tile(tile) + step * 16 * Traits::kRowBytes);
    }
  };
  //| The first tile is always masked, even where the mask cuts nothing: it sets the maxima that the others
  //| rely on.
  int tile = tiles - 1;
  if (tile >= 0) {
#pragma unroll 1
    do process_tile.template operator()<true>(tile);
    while (--tile >= 0 && (tile + 1) * kKeys > problem.visible_keys(first_query));
  }
#pragma unroll 1
  for (; tile >= 0; --tile) process_tile.template operator()<false>(tile);

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
