#include "tests/support/bank_conflicts.h"

namespace flashbook::testing {

std::optional<uint64_t> bank_conflicts() { return std::nullopt; }
std::optional<uint64_t> wasted_sectors() { return std::nullopt; }

}  // namespace flashbook::testing
