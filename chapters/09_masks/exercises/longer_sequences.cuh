/// \file
/// Exercise ch09-search: a search that 32 lanes do together, in numbers that descend.
#pragma once
#include "common/device/kernel.h"

namespace flashbook::masks {

// A scheduler of packed sequences can go round: the first tile of every sequence, then the second of every
// sequence that has two, and so on. Sequences are sorted, the longest first, so those that have more than n
// tiles are the first ones. How many are they? With a thousand sequences nobody wants to look at all of them.

/// How many of `count` descending numbers are above `limit`: 0 to `count`. All lanes of a warp call it, and
/// all get the answer. A number is read as numbers[i]; whatever the count, a lane reads few of them: 3 where
/// there are 1000.
template <typename Numbers>
__device__ inline int how_many_above(const Numbers& numbers,  // [count], descending, some of them equal
                                     int count, int limit) {
  // BEGIN SOLUTION ch09-search
  int begin = 0;  // all numbers before it are above the limit, and none from begin + count on
  while (count > 0) {
    const int step = (count + 31) / 32, offset = int(threadIdx.x % 32) * step;
    const bool is_above = offset < count && numbers[begin + offset] > limit;
    const int above = __popc(__ballot_sync(0xffffffff, is_above));  // pieces whose first number is above
    if (above == 0) break;
    const int piece = (above - 1) * step;  // the last of them: its first number is above, the others may be
    begin += piece + 1;
    count = min(step, count - piece) - 1;
  }
  return begin;
  //~ return count > 0 && numbers[count - 1] > limit ? count : 0;  // TODO: and where only some of them are above?
  // END SOLUTION ch09-search
}

}  // namespace flashbook::masks
