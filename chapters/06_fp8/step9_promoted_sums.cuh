//| # Promoted sums
//|
//| A tensor core adds e4m3 products with about 14 bits: it truncates every product to the lowest bit that it
//| keeps of the sum. The longer the sum, the more each product loses. If products have both signs, the losses
//| cancel. If they have one sign, as when values have a mean, O comes out too small. With V = 1 step 7 loses
//| 0.6 % of O in a row of 1024 keys and 5.7 % in one of 4096, on an H200.
//|
//| So sums have to be short. *Promotion* adds O to a running sum every 960 keys. The accumulator starts again
//| from the rounding error of the running sum. Sums of 960 keys lose 0.4 to 0.6 %, and so does a row of any
//| length.
//|
//| **Where is the running sum?** It would take 64 more registers per thread at d = 128. With three consumers
//| a thread has 160, of which O, S, P and the row sums take 128. So it is in shared memory, in bf16, 16 KB
//| per consumer. Rounding loses nothing, since its error stays in the accumulator and takes part in the next
//| promotion. To make room, O is stored directly from registers.
//|
//| **What does it cost?** A promotion reads and writes 64 x 128 sums, 32 KB, which takes 256 clocks at 128
//| bytes per clock. All three consumers need 768 clocks per 960 keys. Their 10 tiles of 96 keys take about
//| 19,500 clocks at 1088 TFLOP/s, step 7's rate for 16k keys. So promotion costs 4 % if nothing hides it, and
//| less if the other two consumers keep the tensor cores busy meanwhile. We estimated 3 %, and first measured
//| 13 to 15 %: that kernel checked after every tile whether to promote, and the branch in the loop spoilt its
//| schedule. Now step 7's loop is nested in one that promotes. **Measured:** 6 % at d = 128, no mask.
//|
//| ![What is left of a sum of e4m3 products by the number of keys: less and less if values have a mean, all
//| of it without the mean](../../docs/figures/means.svg)
#pragma once
#include "chapters/06_fp8/problem.cuh"
#include "common/ptx/convert.h"

namespace flashbook::fp8 {

//| ## Running sums
//|
//| A thread keeps the sums of its own part of O, so no barrier is needed. Its pieces of 16 bytes are next to
//| those of its neighbours, so that a warp's access has no bank conflicts.

/// The running sums of a consumer's output, in shared memory.
template <int kFloats>
struct RunningSums {
  static constexpr int kSumsPerPiece = 8;
  uint4 piece[kFloats / kSumsPerPiece][kWarpgroup];  ///< [piece][thread], of eight bf16

  /// Sets this thread's sums to 0.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& words : piece) words[threadIdx.x % kWarpgroup] = make_uint4(0, 0, 0, 0);
  }

  /// Returns two sums as they are stored, and leaves the rounding error in `sums`.
  static __device__ __forceinline__ uint32_t take(float* sums) {
    const uint32_t word = pack<__nv_bfloat16>(sums[0], sums[1]);
    const float2 stored = unpack_bf16(word);
    sums[0] -= stored.x, sums[1] -= stored.y;
    return word;
  }

  //| Sums are relative to a maximum. When a row's maximum rises, its running sums need the same correction as
  //| O, but not at once: the corrections are multiplied, and the next promotion applies their product.
  /// output += the running sums times `factor`, by row. kPromote: the result is stored and leaves the output.
  template <bool kPromote>
  __device__ __forceinline__ void add_to(float (&output)[kFloats], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kFloats / kSumsPerPiece; ++i) {
      uint4& place = piece[i][threadIdx.x % kWarpgroup];
      const uint4 old = place;
      uint32_t word[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float* const sums = output + kSumsPerPiece * i + 2 * j;
        const float2 stored = unpack_bf16(word[j]);
        sums[0] += stored.x * factor[row_of(2 * j)], sums[1] += stored.y * factor[row_of(2 * j)];
        if constexpr (kPromote) word[j] = take(sums);
      }
      if constexpr (kPromote) place = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
};

}  // namespace flashbook::fp8
