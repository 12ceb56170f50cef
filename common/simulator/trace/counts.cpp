#include "common/simulator/trace/counts.h"

#include <algorithm>

namespace flashbook::sim {
namespace {

constexpr uint32_t kBanks = 32, kBankBytes = 4;

/// Adds to an array that is usually ascending already.
struct Collected {
  uint32_t count = 0;
  bool ascending = true;
  uint64_t values[128];

  void add(uint64_t value) {
    if (count > 0 && values[count - 1] == value) return;
    ascending = ascending && (count == 0 || values[count - 1] < value);
    values[count++] = value;
  }
  /// Each value once, ascending.
  void settle() {
    if (ascending) return;
    std::sort(values, values + count);
    count = uint32_t(std::unique(values, values + count) - values);
    ascending = true;
  }
};

constexpr uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

Sectors sectors_of(const Request& request) {
  Collected sectors;
  for (uint32_t left = request.lanes; left; left &= left - 1) {
    const uint64_t address = request.of_lane[__builtin_ctz(left)];
    for (uint64_t sector = address / kSectorBytes; sector <= (address + request.bytes - 1) / kSectorBytes;
         ++sector)
      sectors.add(sector);
  }
  sectors.settle();
  Sectors result;
  result.count = sectors.count;
  std::copy_n(sectors.values, sectors.count, result.number);
  return result;
}

Cost global_cost(const Request& request, const Sectors& sectors) {
  Collected addresses;
  for (uint32_t left = request.lanes; left; left &= left - 1)
    addresses.add(request.of_lane[__builtin_ctz(left)]);
  addresses.settle();
  return {sectors.count, std::min(sectors.count, divide_up(addresses.count * request.bytes, kSectorBytes))};
}

Cost shared_cost(const Request& request) {
  const uint32_t together = request.bytes > 8 ? 8 : request.bytes > 4 ? 16 : 32;
  Cost cost{};
  for (uint32_t first = 0; first < 32; first += together) {
    const uint32_t lanes = request.lanes >> first & (together == 32 ? ~0u : (1u << together) - 1);
    if (!lanes) continue;
    Collected words;
    for (uint32_t left = lanes; left; left &= left - 1) {
      const uint64_t address = request.of_lane[first + uint32_t(__builtin_ctz(left))];
      for (uint64_t word = address / kBankBytes; word <= (address + request.bytes - 1) / kBankBytes; ++word)
        words.add(word);
    }
    words.settle();
    uint32_t in_bank[kBanks] = {}, most = 0;
    for (uint32_t i = 0; i < words.count; ++i) most = std::max(most, ++in_bank[words.values[i] % kBanks]);
    cost.units += most;
    cost.ideal += 1;
  }
  return cost;
}

}  // namespace flashbook::sim
