#include <utility>

#include "common/simulator/launch.h"
#include "tests/support/machine.h"

namespace flashbook::testing {

RandomWarpOrder::RandomWarpOrder(uint64_t seed) { sim::options().seed = seed; }
RandomWarpOrder::~RandomWarpOrder() { sim::options().seed = 0; }

ExactSums::ExactSums() : before_(std::exchange(sim::options().exact, true)) {}
ExactSums::~ExactSums() { sim::options().exact = before_; }

}  // namespace flashbook::testing
