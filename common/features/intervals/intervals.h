/// \file
/// FlashMask: intervals of queries that must not see a key.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// Intervals of queries that must not see a key (FlashMask's startend_row_indices, arXiv 2410.01359),
/// including the start but not the end: below the diagonal LTS ... LTE, above it UTS ... UTE. Each key has
/// - 1 bound: LTS; LTE is seqlen_q.
/// - 2 bounds under a causal window: LTS, LTE.
/// - 2 bounds otherwise: LTS, UTE; LTE is seqlen_q and UTS is 0.
/// - 4 bounds: LTS, LTE, UTS, UTE.
struct Columns {
  int heads = 1;            ///< 1, or kv_heads; the query heads of a key head share them
  int bounds = 0;           ///< 1, 2 or 4; 0: no intervals
  Array<int> queries = {};  ///< [batch, heads, seqlen_k, bounds]

  bool operator==(const Columns&) const = default;
};

}  // namespace flashbook
