#include "tests/support/machine.h"

namespace flashbook::testing {

RandomWarpOrder::RandomWarpOrder(uint64_t) {}
RandomWarpOrder::~RandomWarpOrder() {}

InBackground::InBackground(Async, uint64_t) {}
InBackground::~InBackground() {}

void tell_where_it_computes(int) {}

ExactSums::ExactSums() {}
ExactSums::~ExactSums() {}

}  // namespace flashbook::testing
