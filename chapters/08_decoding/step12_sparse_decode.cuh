//| # Step 12: sparse decoding
//|
//| **What this step does.** Keys are in e4m3 ([why](sparse.md#step-12-a-cache-in-e4m3)). Producers load 16
//| elements per thread, convert them and write them to the tile. The position is in bf16, and is copied as
//| in [step 11](step11_sparse_prefill.cuh), from which nothing else differs.
//|
//| ## From e4m3 to bf16
//|
//| A permutation of bytes widens each element to 16 bits and fills the upper eight with its sign. After a
//| shift by four, exponent and fraction are in their places, and so is one of the signs. (NaN becomes a
//| number: a cache has none.)
#pragma once
#include "chapters/08_decoding/step11_sparse_prefill.cuh"
#include "common/ptx/convert.h"

namespace flashbook::decoding {

/// Returns four elements times `scale`, two pairs of bf16. `scale`: the same bf16 twice.
__device__ __forceinline__ uint2 to_bf16_pairs(uint32_t e4m3, uint32_t scale) {
  constexpr uint32_t kBias = 0x7b807b80;  // 2^120
  const auto pair = [&](uint32_t wide) {  // in each half, an element in the lower byte and its sign's copies
    const uint32_t bits = wide << 4 & 0x87f087f0;
    return multiply_bf16(multiply_bf16(bits, kBias), scale);
  };
  return {pair(byte_permute<0x9180>(e4m3, 0)), pair(byte_permute<0xb3a2>(e4m3, 0))};
}

//| ## The producers
//|
//| All four warps convert each half together, since one warp alone would take too long for it. A warp has 16
//| keys of a tile, two at a time: four lanes read the 64 elements of a panel's row, the next four those of
//| the next key, and eight such groups the four panels of the half. So eight lanes write pieces of different
//| banks: a piece of 16 elements fills two places of 16 bytes, of which the swizzle gives one row the even
//| ones and the next row the odd ones.
//|
//| **A whole half is on its way.** A lane has eight pieces of each half. As soon as it has converted one, it
//| may request the one that takes its register, for the next half. The halves continue from round to round
//| and from token to token. A fence for `wgmma` would wait for these loads, too, so it is left to the
//| consumers.
//|
//| **From memory to the L2** may take longer than a half. So a lane that knows a key's place, half a round
//| before its turn, prefetches all of its lines.

/// Keys of 656 bytes, 41 pieces of 16: 512 elements in e4m3, four scales, and a position in bf16.
struct ConvertedKeys {
  /// Arrivals at `full` of a half: each warp's, and those of the position's copies, in the right half.
  static constexpr int arrivals(int half) { return 4 + half * 128; }
  static constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;
  static constexpr int kPieces = 8;  ///< pieces of a half per lane

  __device__ static void produce(SparseShared& shared, const SparseCache& cache, const SparseProblem& problem,
                                 const EvenPlan& plan, int unit, int end) {
    const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32 % 4, 0), lane = threadIdx.x % 32;
    const int entry = entry_of_lane(warp), panel = lane / 8, odd = lane / 4 % 2;
    uint4 elements[kPieces];
    const auto load = [&](int i, int places, int tile, int half) {
      const int at = max(__shfl_sync(kWholeWarp, places, tile * 16 + 2 * i + odd), 0);
      elements[i] = cache.keys[unsigned(at + half * 16 + panel * 4 + lane % 4)];
    };
    const auto prefetch = [&](int place) {
#pragma unroll
      for (int line = 0; line < 6; ++line)
        if (place >= 0) prefetch_l2(cache.keys + place + line * 8);
    };
    //| A warp's 16 keys have 32 scales in a half of a tile, one for each lane. An entry without a key has a
    //| scale of zero, and loads some key's elements.
    const auto load_scale = [&](int places, int tile, int half) {
      const int at = __shfl_sync(kWholeWarp, places, tile * 16 + lane / 2);
      return at < 0 ? 0 : reinterpret_cast<const float*>(cache.keys + at + 32)[half * 2 + lane % 2];
    };
    int places = place_of(cache, problem, plan, unit, listed_key(cache, plan, unit, entry));
    float scale_of_lane = load_scale(places, 0, 0);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) load(i, places, 0, 0);
#pragma unroll 1
    for (uint32_t phase = 1; unit < end; phase ^= 1) {
      const int key = listed_key(cache, plan, ++unit, entry);
      int next_places = places;
#pragma unroll 1
      for (int step = 0; step < 4; ++step) {  // halves, in the order in which they become free
        const int tile = step / 2, half = step % 2, next_tile = (step + 1) / 2 % 2, next_half = 1 - half;
        if (step == 2) prefetch(next_places = place_of(cache, problem, plan, unit, key));
        const int of_next = step == 3 ? next_places : places;
        mbarrier_wait(&shared.empty[tile][half], phase);
        const unsigned exist = __ballot_sync(kWholeWarp, places >= 0);
        if (tile == half && lane == 0) shared.exist[tile][warp] = uint16_t(exist >> 16 * tile);
        const uint32_t scales = pack<__nv_bfloat16>(scale_of_lane, scale_of_lane);
        scale_of_lane = load_scale(of_next, next_tile, next_half);
        if (half == 1) {
          uint4* to = piece_of(shared.keys[tile], row_of_bit(warp, lane / 8), kLatentValueDim + lane % 8 * 8);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int at = __shfl_sync(kWholeWarp, places, tile * 16 + 4 * i + lane / 8);
            cp_async_cg(to + i * 16 * kPanelRowBytes / 16,
                        cache.keys + unsigned(max(at, 0) + kLatentPositionAt / 16 + lane % 8),
                        at >= 0 ? 16 : 0);
          }
          cp_async_arrive(&shared.full[tile][1]);
        }
        const int column = (half * 4 + panel) * kPanel + lane % 4 * 16;
        uint4* const to[2] = {piece_of(shared.keys[tile], row_of_bit(warp, odd), column),
                              piece_of(shared.keys[tile], row_of_bit(warp, odd), column + 8)};
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const uint32_t scale = __shfl_sync(kWholeWarp, scales, 4 * i + 2 * odd + panel / 2);
          const uint4& from = elements[i];
          const uint2 a = to_bf16_pairs(from.x, scale), b = to_bf16_pairs(from.y, scale);
          const uint2 c = to_bf16_pairs(from.z, scale), d = to_bf16_pairs(from.w, scale);
          to[0][i * 8 * kPanelRowBytes / 16] = make_uint4(a.x, a.y, b.x, b.y);
          to[1][i * 8 * kPanelRowBytes / 16] = make_uint4(c.x, c.y, d.x, d.y);
          load(i, of_next, next_tile, next_half);
        }
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&shared.full[tile][half]);
      }
      places = next_places;
    }
  }
};

}  // namespace flashbook::decoding
