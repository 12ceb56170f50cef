#include "common/simulator/describe.h"

#include <cstdio>
#include <string_view>

namespace flashbook::sim {

std::string to_string(Location where) {
  const std::string_view file = where.file;
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(where.line);
}

std::string triple(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string describe_mask(uint32_t mask) {
  char digits[11];
  std::snprintf(digits, sizeof digits, "0x%08x", mask);
  return digits;
}

std::string describe_lanes(uint32_t lanes) {
  constexpr int kWarpLanes = 32;
  std::string text;
  for (int first = 0; first < kWarpLanes; ++first) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last + 1 < kWarpLanes && (lanes >> (last + 1) & 1)) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return (lanes & (lanes - 1) ? "lanes " : "lane ") + text;
}

std::string describe_waiting(uint32_t lanes) {
  return describe_lanes(lanes) + (lanes & (lanes - 1) ? " wait" : " waits");
}

std::string describe_call(const char* what, Location where) {
  return where.line > 0 ? std::string(what) + " at " + to_string(where) : what;
}

std::string describe_call(const Collective& collective, Location where, uint32_t mask) {
  return describe_call(collective.name, where) + " with mask " + describe_mask(mask);
}

}  // namespace flashbook::sim
