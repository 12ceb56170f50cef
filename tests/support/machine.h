/// \file
/// What tests may ask of the simulator, and what a GPU build makes of it.
#pragma once
#include <cstdint>
#include <optional>

namespace flashbook::testing {

/// While it lives, the simulator runs warps in the random order of `seed`. A GPU does as it likes anyway.
class RandomWarpOrder {
 public:
  explicit RandomWarpOrder(uint64_t seed);
  ~RandomWarpOrder();
};

/// When what runs in the background is done: at once, when somebody waits for it, or at any time between.
enum class Async { eager, lazy, random };

/// While it lives, the simulator does so, at random in the order of `seed`. A GPU does as it likes anyway.
class InBackground {
 public:
  InBackground(Async async, uint64_t seed);
  ~InBackground();

 private:
  [[maybe_unused]] Async before_ = Async::lazy;
};

/// How many kernels the simulator has launched so far. Nothing on a GPU, which does not count.
std::optional<uint64_t> kernels_launched();

/// After so many seconds the process prints which line the calling thread is at: whoever stops a loop that
/// never ends then knows where it is. A GPU build says nothing.
void tell_where_it_computes(int seconds);

/// While it lives, the simulator's tensor cores round as an H200's do. A GPU's do anyway.
class ExactSums {
 public:
  ExactSums();
  ~ExactSums();

 private:
  [[maybe_unused]] bool before_ = true;
};

}  // namespace flashbook::testing
