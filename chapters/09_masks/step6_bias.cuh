//| # The gradient of a bias
//|
//| A bias by distance (step 5) is learned, so it needs a gradient. A score is $s + b_h[j - i]$, and
//| $dS = P \circ (dP - D)$ is the derivative by that score. So $db_h[\delta]$ is the sum of dS over *all
//| pairs at distance $\delta$* in all batch entries, that is, along a diagonal of the score matrix. Distances
//| past the reach belong to the table's ends. Unlike dQ and dK there is no factor $\mathrm{scale}$, because
//| the bias is added to a score that already includes it.
//|
//| The tiles of step 6 have dS in registers, as floats, before it is rounded for dQ and dK, and this file
//| sums it there, without storing dS. A warp has 16 keys by 64 queries (128 at d = 64), which lie on 79
//| diagonals. Its lanes first sum their elements of each diagonal, and one addition per diagonal goes to
//| memory: 79 floats for 1024 elements. dQ gets 8192 floats at d = 128 for the block's 8 warps.
//|
//| ![The diagonals of a warp's keys and queries: a thread's floats eight apart, lanes that have the same
//| distance, and 32 distances for one addition of a warp](../../docs/figures/bias_diagonals.svg)
#pragma once
#include "chapters/09_masks/step6_transposed.cuh"
#include "common/hopper/block.h"
#include "common/ptx/atomic.h"

namespace flashbook::masks {

//| ## Diagonals and lanes
//|
//| A lane is `4a + b`: a = 0 ... 7 is its key and b = 0 ... 3 its columns. For each of its floats r = 0, 1 is
//| the row, 8 keys apart, c = 0, 1 the column, and g counts groups of 8 columns. So the float belongs to the
//| distance
//|
//| $$\mathrm{own} + a + 8r - (8g + 2b + c) = \mathrm{own} + (a - 2b - c) - 8(g - r)$$
//|
//| where *own* is the distance of the warp's first key and the tile's first query. This suggests three steps:
//|
//| 1. **In the thread.** Floats of equal g - r and c have the same distance, so the two rows leave one sum. m
//|    = g - r + 1 counts from 0.
//| 2. **Which eight.** a - 2b - c is -7 to 7, and t is that, or 8 more if it is negative; then n is m + 1
//|    and not m. Then the distance is own + 8 + t - 8n, and a lane's t is the same for all its sums of one c.
//|    Those of c = 1 come from the lane of the next key, whose t for c = 1 is this lane's for c = 0.
//| 3. **Among four lanes.** Four lanes have the same t. For four values of n at a time they exchange two
//|    sums, then one, as in a transpose, and each lane is left with one n. The 32 lanes then have 32
//|    neighbouring distances, and one instruction adds them, 128 bytes.

/// Adds dS^T of a warp's 16 keys and kFloats * 2 queries to sums by distance. `sums` is the place of distance
/// 0, `own` the distance of the first key and the first query. All lanes of the warp.
template <int kFloats>
__device__ __forceinline__ void add_diagonals(const float (&ds)[kFloats], float* sums, int reach, int own) {
  constexpr int kGroups = kFloats / 4;  // groups of 8 queries
  const int lane = int(threadIdx.x % 32), a = lane / 4, b = lane % 4;
  //| Tiles whose pairs are all past the reach have one sum. With a reach of 128 and 8192 tokens these are
  //| most of them.
  if (own + kRowsPerWarp - 1 <= -reach || own - (8 * kGroups - 1) >= reach) {
    float sum = 0;
#pragma unroll
    for (float value : ds) sum += value;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, distance);
    if (lane == 0) red_add(sums + (own < 0 ? -reach : reach), sum);
    return;
  }
  const auto thread_value = [&](int c, int m) {
    return (m >= 0 && m < kGroups ? ds[4 * m + 2 + c] : 0) + (m >= 1 && m <= kGroups ? ds[4 * m - 4 + c] : 0);
  };
  const int t = (a + 16 - 2 * b) % 8;
  const bool wraps[2] = {a < 2 * b, a < 2 * b + 1};
  //| The loop is unrolled, so every index is known at compile time, and no float leaves its register.
#pragma unroll
  for (int first = 0; first < kGroups + 2; first += 4) {
    float lane_sums[4];  // sums of n = first + i
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int n = first + i;
      const float even = wraps[0] ? thread_value(0, n - 1) : thread_value(0, n);
      const float odd = wraps[1] ? thread_value(1, n - 1) : thread_value(1, n);
      lane_sums[i] = even + __shfl_sync(kWholeWarp, odd, (lane + 4) % 32);
    }
    //| The four lanes with the same t are 9 apart: two keys further, and the next column pair.
    float pair_sums[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float given = b % 2 == 0 ? lane_sums[2 + i] : lane_sums[i];
      pair_sums[i] = (b % 2 == 0 ? lane_sums[i] : lane_sums[2 + i]) +
                     __shfl_sync(kWholeWarp, given, (lane + (b % 2 == 0 ? 9 : 23)) % 32);
    }
    const float given = b < 2 ? pair_sums[1] : pair_sums[0];
    const float sum = (b < 2 ? pair_sums[0] : pair_sums[1]) +
                      __shfl_sync(kWholeWarp, given, (lane + (b < 2 ? 18 : 14)) % 32);
    const int distance = own + 8 + t - 8 * (first + b % 2 * 2 + b / 2);
    if (sum != 0) red_add(sums + min(max(distance, -reach), reach), sum);
  }
}

//| Blocks add to the same float in any order, so two launches differ in the last bits. Step 7,
//| whose bits are always the same, does not support this gradient: it would need a table for each tile of
//| keys.

//| ## Zeros
//|
//| Blocks add, so the sums must begin at 0. This kernel is launched only if the gradient is wanted.
constexpr int kClearThreads = 256;

/// Sets floats to 0. Grid: floats / kClearThreads, rounded up.
[[maybe_unused]] static __global__ void clear_floats(float* floats, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * kClearThreads + threadIdx.x;
  if (i < count) floats[i] = 0;
}

}  // namespace flashbook::masks
