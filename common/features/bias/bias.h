/// \file
/// A learned bias by distance.
#pragma once
#include <algorithm>
#include <cstdint>

#include "common/features/array.h"

namespace flashbook {

/// A learned bias per head and distance, clipped as in Shaw et al. (arXiv 1803.02155); T5's buckets (arXiv
/// 1910.10683) are runs of equal values.
struct RelativeBias {
  int reach = 0;             ///< keys further away use the outermost bias
  Array<float> values = {};  ///< [heads, 2 * reach + 1]; empty: none

  /// Returns the term added to the score of a key `distance` keys after the query's own.
  float at(int head, int64_t distance) const { return values[std::size_t(place(head, distance))]; }
  /// Returns the index of that term among the values.
  int64_t place(int head, int64_t distance) const {
    return head * (2 * int64_t(reach) + 1) + std::clamp<int64_t>(distance, -reach, reach) + reach;
  }
  bool operator==(const RelativeBias&) const = default;
};

}  // namespace flashbook
