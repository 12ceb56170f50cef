#include "tests/support/bank_conflicts.h"

namespace flashbook::testing {

std::optional<uint64_t> bank_conflicts() { return std::nullopt; }

}  // namespace flashbook::testing
