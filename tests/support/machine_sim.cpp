#include "common/simulator/launch.h"
#include "tests/support/machine.h"

namespace flashbook::testing {

RandomWarpOrder::RandomWarpOrder(uint64_t seed) { sim::options().seed = seed; }
RandomWarpOrder::~RandomWarpOrder() { sim::options().seed = 0; }

}  // namespace flashbook::testing
