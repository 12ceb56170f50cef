//| # Promoted sums
//|
//| A tensor core adds e4m3 products with about 14 bits: it truncates every product to the lowest bit that it
//| keeps of the sum. The longer the sum, the more each product loses. If products have both signs, the losses
//| cancel. If they have one sign, as when values have a mean, O comes out too small. With V = 1 the
//| simulator, which adds like an H200, loses 0.6 % of O in a row of 1024 keys and 5.6 % in one of 4096.
//|
//| So sums have to be short. *Promotion* moves them out of the tensor cores every 768 keys, adds them to a
//| running sum in float32, and clears the accumulator. Sums of 768 keys lose 0.3 to 0.4 %, and so does a row
//| of any length.
//|
//| **Where is the running sum?** It would take 64 more registers per thread at d = 128. With three consumers
//| a thread has 160, of which O, S, P and the row sums take 128. So it is in shared memory, 32 KB per
//| consumer. To make room, O is stored directly from registers.
//|
//| **What does it cost?** A promotion reads and writes 64 x 128 floats, 64 KB, which takes 512 clocks at 128
//| bytes per clock. All three consumers need 1536 clocks per 768 keys. Their 8 tiles of 96 keys take about
//| 15,400 clocks at 1102 TFLOP/s, step 7's rate for 16k keys. So promotion costs 10 % if nothing hides it.
//| But it delays only one consumer: the other two keep the tensor cores busy, and a scheduler issues
//| no more than 3 x 130 instructions for it. **Predicted:** 3 %, a guess. **Measured:** 13 to 15 %.
//|
//| **At d = 256** 64 KB per consumer do not fit. There the running sum is kept in bf16, half the bytes.
//| Nothing is lost by rounding, since the rounding error stays in the accumulator and takes part in the next
//| promotion. This costs two conversions and two subtractions per pair of floats, where the tensor cores are
//| the bottleneck anyway.
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

/// The running sums of a consumer's output, in shared memory, as float or bf16.
template <typename Stored, int kFloats>
struct RunningSums {
  static constexpr bool kRounds = sizeof(Stored) < sizeof(float);
  static constexpr int kSumsPerWord = kRounds ? 2 : 1, kSumsPerPiece = 4 * kSumsPerWord;  ///< sums
  uint4 piece[kFloats / kSumsPerPiece][kWarpgroup];                                       ///< [piece][thread]

  /// Sets this thread's sums to 0.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& words : piece) words[threadIdx.x % kWarpgroup] = make_uint4(0, 0, 0, 0);
  }

  /// Adds the sums in `word`, times `factor`.
  static __device__ __forceinline__ void add(float* sums, uint32_t word, float factor) {
    if constexpr (kRounds) {
      const float2 stored = unpack_bf16(word);
      sums[0] += stored.x * factor, sums[1] += stored.y * factor;
    } else {
      sums[0] += __uint_as_float(word) * factor;
    }
  }

  /// Returns the sums as they are stored, and leaves what is not: the error of rounding, or 0.
  static __device__ __forceinline__ uint32_t take(float* sums) {
    if constexpr (kRounds) {
      const uint32_t word = pack<Stored>(sums[0], sums[1]);
      const float2 stored = unpack_bf16(word);
      sums[0] -= stored.x, sums[1] -= stored.y;
      return word;
    } else {
      const uint32_t word = __float_as_uint(sums[0]);
      sums[0] = 0;
      return word;
    }
  }

  //| Sums are relative to a maximum. When a row's maximum rises, its running sums need the same correction
  //| as O. A promotion applies it, since it multiplies what it reads. Lazy rescaling makes this rare.
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
        float* const sums = output + kSumsPerPiece * i + kSumsPerWord * j;
        add(sums, word[j], factor[row_of(kSumsPerWord * j)]);
        if constexpr (kPromote) word[j] = take(sums);
      }
      if constexpr (kPromote) place = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
};

}  // namespace flashbook::fp8
