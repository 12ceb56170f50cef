#include "tests/support/work.h"

namespace flashbook::testing {

std::optional<Work> work_of(const std::vector<std::function<void()>>& launches, double, int) {
  for (const auto& launch : launches) launch();
  return std::nullopt;
}

}  // namespace flashbook::testing
