/// \file
/// Exercise ch04-rescale: a maximum rises, and O lies transposed.
#pragma once
#include "chapters/04_flash_attention_2/softmax.cuh"

namespace flashbook::fa2 {

// A kernel that multiplies V^T by P^T has O transposed: dims are the rows of a fragment and queries its
// columns. In a result of 16 dims by 8 queries, lane l has queries 2 (l mod 4) and the next, in dims l / 4
// (floats 0 and 1) and l / 4 + 8 (floats 2 and 3). rows.max[b][i] and rows.sum[b][i] are the maximum and sum
// of query block b, for the lane's query i = 0 or 1; all eight lanes of a query hold the same maximum.

/// Adopts `maxima`, those of old and new keys, and rescales what was summed relative to the old ones, unless
/// no query's maximum rises by more than kSlack powers of 2. Both are of scores before the scale.
template <int kDimBlocks, int kQueryBlocks>
__device__ void rescale_transposed(const float (&maxima)[kQueryBlocks][2],
                                   Blocks<kDimBlocks, kQueryBlocks>& out, RowState<kQueryBlocks>& rows,
                                   float scale_log2e) {
  bool rises = false;
  for (int b = 0; b < kQueryBlocks; ++b)
    for (int i = 0; i < 2; ++i)  // a query without a key: -inf - -inf is NaN, which is not greater
      rises |= (maxima[b][i] - rows.max[b][i]) * scale_log2e > kSlack;
  if (!__any_sync(kWarp, rises)) return;
  // BEGIN EXERCISE ch04-rescale: a maximum rises, and O lies transposed
  static_cast<void>(out);  // TODO: O and the sums are still relative to the old maxima
  for (int b = 0; b < kQueryBlocks; ++b)
    for (int i = 0; i < 2; ++i) rows.max[b][i] = maxima[b][i];
  // END EXERCISE ch04-rescale
}

}  // namespace flashbook::fa2
