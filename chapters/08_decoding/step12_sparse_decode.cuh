//| # Step 12: sparse decoding
//|
//| **What this step is about.** [Step 11](step11_sparse_prefill.cuh) gathers keys in bf16. A serving system
//| keeps the latents of V3.2 in e4m3: a key has 656 bytes instead of 1152. The tensor cores multiply bf16, so
//| each element must be converted, and there are no tensor cores for that.
//|
//| **What this step does.** It replaces the producers. A thread loads 16 elements, converts them and writes
//| them to the tile. The position is in bf16, and is copied as before. Nothing else changes.
//|
//| **Budget.** A token's 512 elements must be converted in the 34 clocks that the tensor cores need for its
//| FLOPs with 64 heads: 4 integer instructions per pair of elements would take 16.
//|
//| ## From e4m3 to bf16
//|
//| The obvious way goes from e4m3 to f16 to float to bf16, one conversion instruction each, and these run at
//| a quarter of the rate of others. But both formats are a sign, an exponent and a fraction, so *moving the
//| bits* is enough: shift exponent and fraction to where bf16 has the last four bits of its exponent and the
//| first three of its fraction. What is wrong then is the exponent's bias, 127 instead of 7: the number is
//| too small by a factor of $2^{120}$, and one multiplication of pairs corrects it. It is right for subnormal
//| numbers, too, since bf16's subnormals are also fractions without a leading 1. (NaN becomes a number: a
//| cache has none.) A second multiplication applies the scale. Scales that are powers of two are exact, as
//| DeepSeek's are; others are rounded to bf16.
#pragma once
#include "chapters/08_decoding/step11_sparse_prefill.cuh"
#include "common/ptx/convert.h"

namespace flashbook::decoding {

/// Returns four elements times `scale`, two pairs of bf16. `scale`: the same bf16 twice.
__device__ __forceinline__ uint2 to_bf16_pairs(uint32_t e4m3, uint32_t scale) {
  constexpr uint32_t kBias = 0x7b807b80;   // 2^120
  const auto pair = [&](uint32_t upper) {  // elements in the upper byte of each half
    const uint32_t bits = (upper & 0x80008000) | (upper >> 4 & 0x07f007f0);
    return multiply_bf16(multiply_bf16(bits, kBias), scale);
  };
  return {pair(byte_permute<0x1404>(e4m3, 0)), pair(byte_permute<0x3424>(e4m3, 0))};
}

//| ## The producers
//|
//| All four warps convert each half together, since one warp alone would take too long for it. A warp has 16
//| keys of a tile, two at a time: four lanes read the 64 elements of a panel's row, the next four those of
//| the next key, and eight such groups the four panels of the half. So eight lanes write pieces of different
//| banks: a piece of 16 elements fills two places of 16 bytes, of which the swizzle gives one row the even
//| ones and the next row the odd ones.
//|
//| **A whole half is on its way while the previous one is converted.** A lane has eight pieces of each half.
//| As soon as it has converted one, it requests the one that takes its register, for the next half. The
//| halves continue from round to round and from token to token.

/// Keys of 656 bytes, 41 pieces of 16: 512 elements in e4m3, four scales, and a position in bf16.
struct ConvertedKeys {
  static constexpr int kProducers = 4;  ///< warps that load a half of a tile
  static constexpr int kProducerRegisters = 88, kConsumerRegisters = 208;
  static constexpr int kPieces = 8;  ///< pieces of a half per lane

  __device__ static void produce(SparseShared& shared, const SparseCache& cache, const SparseProblem& problem,
                                 const EvenPlan& plan, int unit, int end) {
    const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32 % 4, 0);
    int lane = threadIdx.x % 32;
    const auto panel = [&] { return lane / 8; };
    const auto odd = [&] { return lane / 4 % 2; };
    //| Lanes 0 to 15 know the places of the warp's keys in the first tile, the others those in the second.
    const auto find = [&](int own) {
      if (own >= end) return -1;
      return place_of(cache, problem, plan, own,
                      lane / 16 * SparseTraits::kKeys + row_of_bit(warp, lane % 16));
    };
    //| A warp's 16 keys have 32 scales in a half of a tile, one for each lane.
    uint4 elements[kPieces];
    const auto load = [&](int i, int places, int tile, int half) {
      const int at = __shfl_sync(kWholeWarp, places, tile * 16 + 2 * i + odd());
      elements[i] = at < 0 ? uint4{} : cache.keys[at + half * 16 + panel() * 4 + lane % 4];
    };
    const auto load_scale = [&](int places, int tile, int half) {
      const int at = __shfl_sync(kWholeWarp, places, tile * 16 + lane / 2);
      return at < 0 ? 0 : reinterpret_cast<const float*>(cache.keys + at + 32)[half * 2 + lane % 2];
    };
    int places = find(unit);
    float scale_of_lane = load_scale(places, 0, 0);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) load(i, places, 0, 0);
#pragma unroll 1
    for (uint32_t phase = 0; unit < end; phase ^= 1) {
      const int next = find(++unit);
#pragma unroll 1
      for (int step = 0; step < 4; ++step) {      // halves, in the order in which they become free
        lane = int(hide_origin(unsigned(lane)));  // so that values derived from it are not kept
        const int tile = step % 2, half = step == 1 || step == 2;
        const int next_tile = 1 - tile, next_half = step < 2;
        const int next_places = step == 3 ? next : places;
        mbarrier_wait(&shared.empty[tile][half], phase ^ 1);
        const unsigned exist = __ballot_sync(kWholeWarp, places >= 0);
        if (tile == half && lane == 0) shared.exist[tile][warp] = uint16_t(exist >> 16 * tile);
        const float scales = scale_of_lane;
        scale_of_lane = load_scale(next_places, next_tile, next_half);
        if (half == 1)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int at = __shfl_sync(kWholeWarp, places, tile * 16 + 4 * i + lane / 8);
            cp_async_cg(piece_of(shared.keys[tile], row_of_bit(warp, 4 * i + lane / 8),
                                 kLatentValueDim + lane % 8 * 8),
                        cache.keys + max(at, 0) + kLatentPositionAt / 16 + lane % 8, at >= 0 ? 16 : 0);
          }
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const float own = __shfl_sync(kWholeWarp, scales, 4 * i + 2 * odd() + panel() / 2);
          const uint32_t scale = pack<__nv_bfloat16>(own, own);
          const uint4& from = elements[i];
          const uint2 a = to_bf16_pairs(from.x, scale), b = to_bf16_pairs(from.y, scale);
          const uint2 c = to_bf16_pairs(from.z, scale), d = to_bf16_pairs(from.w, scale);
          const int row = row_of_bit(warp, 2 * i + odd()),
                    column = (half * 4 + panel()) * kPanel + lane % 4 * 16;
          *piece_of(shared.keys[tile], row, column) = make_uint4(a.x, a.y, b.x, b.y);
          *piece_of(shared.keys[tile], row, column + 8) = make_uint4(c.x, c.y, d.x, d.y);
          load(i, next_places, next_tile, next_half);
        }
        cp_async_wait_all();
        fence_proxy_async();  // this lane's writes become visible to wgmma
        __syncwarp();
        if (lane == 0) mbarrier_arrive(&shared.full[tile][half]);
      }
      places = next;
    }
  }
};

}  // namespace flashbook::decoding
