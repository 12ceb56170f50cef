/// \file
/// Exercise ch09-search: a search by 32 lanes together, in descending numbers.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::masks {

// A scheduler of packed sequences can go in rounds: the first tile of every sequence, then the second of
// every sequence that has two, and so on. Sequences are sorted, the longest first, so those with more than n
// tiles are the first ones. How many are there? With a thousand sequences it should not read them all.

/// Returns how many of `count` descending numbers are above `limit`: 0 to `count`. All lanes of a warp call
/// it, and all get the answer. A number is read as numbers[i]; for any count, a lane reads few of them, for
/// example 3 of 1000.
template <typename Numbers>
__device__ inline int how_many_above(const Numbers& numbers,  // [count], descending, some of them equal
                                     int count, int limit) {
  // BEGIN EXERCISE ch09-search: which sequences have one more tile
  return count > 0 && numbers[count - 1] > limit ? count : 0;  // TODO: and where only some of them are above?
  // END EXERCISE ch09-search
}

}  // namespace flashbook::masks
