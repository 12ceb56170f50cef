/// \file
/// What tests may ask of the simulator, and what a GPU build makes of it.
#pragma once
#include <cstdint>

namespace flashbook::testing {

/// While it lives, the simulator runs warps in the random order of `seed`. A GPU does as it likes anyway.
class RandomWarpOrder {
 public:
  explicit RandomWarpOrder(uint64_t seed);
  ~RandomWarpOrder();
};

}  // namespace flashbook::testing
