#include "tests/support/machine.h"

namespace flashbook::testing {

RandomWarpOrder::RandomWarpOrder(uint64_t) {}
RandomWarpOrder::~RandomWarpOrder() {}

ExactSums::ExactSums() {}
ExactSums::~ExactSums() {}

}  // namespace flashbook::testing
