#include "common/simulator/trace/counts.h"

#include <algorithm>

namespace flashbook::sim {
namespace {

/// Collects values in an array that is usually already ascending.
struct Collected {
  uint32_t count = 0;
  bool ascending = true;
  uint64_t values[128];

  void add(uint64_t value) {
    if (count > 0 && values[count - 1] == value) return;
    ascending = ascending && (count == 0 || values[count - 1] < value);
    values[count++] = value;
  }
  /// Sorts the values and removes duplicates.
  void settle() {
    if (ascending) return;
    std::sort(values, values + count);
    count = uint32_t(std::unique(values, values + count) - values);
    ascending = true;
  }
};

constexpr uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

/// Returns the number of different addresses that the lanes access.
uint32_t distinct_addresses(const Request& request) {
  uint32_t count = 0;
  uint64_t last = 0;
  for (uint32_t left = request.lanes; left; left &= left - 1) {
    const uint64_t address = request.of_lane[__builtin_ctz(left)];
    if (count > 0 && address == last) continue;
    if (count > 0 && address < last) {
      Collected addresses;
      for (uint32_t all = request.lanes; all; all &= all - 1)
        addresses.add(request.of_lane[__builtin_ctz(all)]);
      addresses.settle();
      return addresses.count;
    }
    last = address;
    ++count;
  }
  return count;
}

/// Returns the number of wavefronts for lanes that are served together.
uint32_t wavefronts(const Request& request, uint32_t lanes) {
  // Usually no bank has to deliver more than one word.
  uint64_t word_of_bank[kBanks];
  uint32_t asked = 0;
  bool conflict = false;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const uint64_t address = request.of_lane[__builtin_ctz(left)];
    for (uint64_t word = address / kBankBytes; word <= (address + request.bytes - 1) / kBankBytes; ++word) {
      const auto bank = uint32_t(word % kBanks);
      conflict |= (asked >> bank & 1) != 0 && word_of_bank[bank] != word;
      asked |= 1u << bank;
      word_of_bank[bank] = word;
    }
  }
  if (!conflict) return 1;
  Collected words;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const uint64_t address = request.of_lane[__builtin_ctz(left)];
    for (uint64_t word = address / kBankBytes; word <= (address + request.bytes - 1) / kBankBytes; ++word)
      words.add(word);
  }
  words.settle();
  uint32_t in_bank[kBanks] = {}, most = 0;
  for (uint32_t i = 0; i < words.count; ++i) most = std::max(most, ++in_bank[words.values[i] % kBanks]);
  return most;
}

}  // namespace

Sectors sectors_of(const Request& request) {
  Sectors result;
  uint64_t first = ~uint64_t(0), last = 0;
  for (uint32_t left = request.lanes; left; left &= left - 1) {
    const uint64_t address = request.of_lane[__builtin_ctz(left)];
    first = std::min(first, address / kSectorBytes);
    last = std::max(last, (address + request.bytes - 1) / kSectorBytes);
  }
  if (last - first < 64) {  // fits in one bit each
    uint64_t touched = 0;
    for (uint32_t left = request.lanes; left; left &= left - 1) {
      const uint64_t address = request.of_lane[__builtin_ctz(left)];
      touched |= uint64_t(1) << (address / kSectorBytes - first);
      touched |= uint64_t(1) << ((address + request.bytes - 1) / kSectorBytes - first);
    }
    for (; touched; touched &= touched - 1)
      result.number[result.count++] = first + uint64_t(__builtin_ctzll(touched));
    return result;
  }
  Collected sectors;
  for (uint32_t left = request.lanes; left; left &= left - 1) {
    const uint64_t address = request.of_lane[__builtin_ctz(left)];
    sectors.add(address / kSectorBytes);
    sectors.add((address + request.bytes - 1) / kSectorBytes);
  }
  sectors.settle();
  result.count = sectors.count;
  std::copy_n(sectors.values, sectors.count, result.number);
  return result;
}

Cost global_cost(const Request& request, const Sectors& sectors) {
  if (sectors.count == 1) return {1, 1};
  return {sectors.count,
          std::min(sectors.count, divide_up(distinct_addresses(request) * request.bytes, kSectorBytes))};
}

Cost shared_cost(const Request& request) {
  const uint32_t together = request.bytes > 8 ? 8 : request.bytes > 4 ? 16 : 32;
  Cost cost{};
  for (uint32_t first = 0; first < 32; first += together) {
    const uint32_t lanes = request.lanes & (together == 32 ? ~0u : ((1u << together) - 1) << first);
    if (!lanes) continue;
    cost.units += wavefronts(request, lanes);
    cost.ideal += 1;
  }
  return cost;
}

}  // namespace flashbook::sim
