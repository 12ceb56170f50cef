/// \file
/// Control of the simulator for tests, and its GPU counterpart.
#pragma once
#include <cstdint>
#include <optional>

namespace flashbook::testing {

/// During its lifetime, the simulator runs warps in a random order drawn from `seed`. No effect on a GPU.
class RandomWarpOrder {
 public:
  explicit RandomWarpOrder(uint64_t seed);
  ~RandomWarpOrder();
};

/// When asynchronous operations complete: at once, when a thread waits for them, or at any time between.
enum class Async { eager, lazy, random };

/// During its lifetime, the simulator completes asynchronous operations this way, with randomness drawn from
/// `seed`. No effect on a GPU.
class InBackground {
 public:
  InBackground(Async async, uint64_t seed);
  ~InBackground();

 private:
  [[maybe_unused]] Async before_ = Async::lazy;
};

/// Returns the number of kernels that the simulator has launched so far. Empty on a GPU.
std::optional<uint64_t> kernels_launched();

/// After this many seconds, the process prints the calling thread's current line, which locates endless
/// loops. No effect in a GPU build.
void tell_where_it_computes(int seconds);

/// During its lifetime, the simulator's tensor cores round like those of an H200. No effect on a GPU.
class ExactSums {
 public:
  ExactSums();
  ~ExactSums();

 private:
  [[maybe_unused]] bool before_ = true;
};

}  // namespace flashbook::testing
