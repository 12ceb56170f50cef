/// \file
/// Chapter 5 with a clock: steps 2 to 5 as versions that write down when their loops pass which point.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/app/chapter.h"

namespace flashbook {

/// Chapter 5, recorded. It takes head_dim 64 and 128, at most 64 tiles of 128 keys, no mask, BF16, and steps
/// 2 to 5.
Chapter recorded_chapter();

/// What the first warp of a warpgroup did for one tile of keys.
struct Pass {
  int warpgroup;                      ///< 0 is the producer
  int tile;                           ///< of keys; the last is the first to be worked on
  std::map<std::string, int64_t> at;  ///< when it passed which moment (moments.h), in cycles
};

/// The record of one block, from the middle of the last launch, and forgets it. The tiles that come first are
/// first. In the simulator cycles only count moments.
std::vector<Pass> take_record();

}  // namespace flashbook
