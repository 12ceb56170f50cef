//| # A rotation for eight bits
//|
//| A query and a key enter attention only through their product, and $(qM) \cdot (kM) = q \cdot k$ for every
//| orthogonal $M$. So both may be rotated before they are quantised. The rotation spreads a row's large
//| element over all columns.
//|
//| $M = \mathrm{diag}(s)\, H / \sqrt d$, where the $s_i$ are random signs and $H$ is the Hadamard matrix,
//| whose element $(i, j)$ is $-1$ if the numbers $i$ and $j$ have an odd number of ones in common and $+1$
//| otherwise. All elements of $M$ have the same size, which spreads best. The signs prevent a row that looks
//| like a row of $H$, for example with all elements equal, from being gathered into one place. And $H$ needs
//| no multiplications: for each bit of the column's number, every two columns that differ in just this bit
//| are replaced by their sum and their difference. That takes $d \log_2 d$ additions per row, instead of
//| $d^2$ multiply-adds.
//|
//| ![A row with one element of 16 and 63 near 1, and the same row rotated: the largest is below
//| 4](../../docs/figures/rotation.svg)
#pragma once
#include "common/device/kernel.h"

namespace flashbook::quantiser {

constexpr int kColumns = 8;  ///< neighbouring columns that a thread holds: 16 bytes of f16
constexpr unsigned kWholeWarp = 0xffffffff;

/// The signs of a rotation: bit i of byte b negates column 8 b + i. Make it a __grid_constant__ of a kernel:
/// lanes read different bytes, and otherwise each thread would copy it to local memory.
template <int kHeadDim>
struct Signs {
  uint8_t negative[kHeadDim / kColumns];
};

//| ## Butterflies
//|
//| A row is spread over $d / 8$ neighbouring lanes. For the three lowest bits of the column's number both
//| elements are the thread's own. For higher bits one of them is in another lane, and `__shfl_xor_sync`
//| fetches it: the lane with the bit set keeps the difference, the other lane the sum.
//|
//| **Budget.** No register beyond the values and the one being exchanged. The cost is shuffles: eight for
//| each bit of the lane, 3, 4 or 5 bits at $d$ = 64, 128, 256. A multiprocessor does 32 lanes of a shuffle
//| per clock, so 132 of them at 1.7 GHz do $7.2 \cdot 10^{12} / 5 = 1.4 \cdot 10^{12}$ elements per second at
//| $d = 256$. Memory at 4.3 TB/s moves $1.4 \cdot 10^{12}$ per second, at three bytes per element.
//|
//| **Predicted.** Shuffles hide behind memory at $d = 64$ and 128, where they take 60 and 80 % of memory's
//| time. At $d = 256$ both take the same time and do not overlap perfectly: 1.2 times as long as without a
//| rotation.

/// Rotates the row that a thread and its neighbours hold: value[i] is column kColumns * (lane's place) + i.
/// All lanes of the warp.
template <int kHeadDim>
__device__ __forceinline__ void rotate(float (&value)[kColumns], const Signs<kHeadDim>& signs) {
  constexpr int kLanes = kHeadDim / kColumns;  // per row
  static_assert(kLanes <= 32, "a row lies in one warp");
  const int place = threadIdx.x % kLanes;
  const unsigned negative = signs.negative[place];
  //| Signs first, then the three bits of the thread's own columns, then the bits of the lane.
#pragma unroll
  for (int i = 0; i < kColumns; ++i) value[i] = negative >> i & 1 ? -value[i] : value[i];
#pragma unroll
  for (int bit = 1; bit < kColumns; bit *= 2)
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (i & bit) continue;
      const float without = value[i], with = value[i + bit];
      value[i] = without + with;
      value[i + bit] = without - with;
    }
#pragma unroll
  for (int bit = 1; bit < kLanes; bit *= 2)
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const float other = __shfl_xor_sync(kWholeWarp, value[i], bit);
      value[i] = place & bit ? other - value[i] : other + value[i];
    }
  // The norm is preserved. The factor is a constant: 2^-3, 2^-4, or 2^-3.5 rounded.
  constexpr float kScale = kHeadDim == 64 ? 0.125f : kHeadDim == 128 ? 0.08838834764831845f : 0.0625f;
#pragma unroll
  for (float& element : value) element *= kScale;
}

}  // namespace flashbook::quantiser
