/// \file
/// Chapter 5 with a clock: versions of steps 2 to 5 that record when their loops pass each point.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/app/chapter.h"

namespace flashbook {

/// Chapter 5 with a record. Supports steps 2 to 5, BF16, head_dim 64 and 128, at most 64 tiles of 128 keys,
/// no mask.
Chapter recorded_chapter();

/// The moments of a warpgroup's first warp for one tile of keys.
struct Pass {
  int warpgroup;                      ///< 0 is the producer
  int tile;                           ///< number of the tile of keys; tiles are processed in descending order
  std::map<std::string, int64_t> at;  ///< the cycle of each moment (moments.h)
};

/// Returns and clears the record of one block from the middle of the last launch, in the order of processing.
/// In the simulator cycles only count moments.
std::vector<Pass> take_record();

}  // namespace flashbook
