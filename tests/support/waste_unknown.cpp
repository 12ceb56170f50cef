#include "tests/support/waste.h"

namespace flashbook::testing {

std::string bank_conflicts() { return ""; }
std::string wasted_sectors() { return ""; }

}  // namespace flashbook::testing
