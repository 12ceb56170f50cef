#include "common/simulator/trace/requests.h"

#include <algorithm>

namespace flashbook::sim {

void Requests::begin(int threads) {
  threads_ = threads;
  if (logs_.size() < std::size_t(threads)) logs_.resize(std::size_t(threads));
  sizes_.assign(logs_.size(), 0);
  recent_.fill({});  // another grid may have begun, which has touched no sector
}

void Requests::finish() {
  for (int warp = 0; warp * 32 < threads_; ++warp) converge(warp, ~0u);
}

void Requests::converge(int warp, uint32_t lanes) {
  const int first = warp * 32, count = std::min(32, threads_ - first);
  Log* logs = &logs_[std::size_t(first)];
  uint32_t* sizes = &sizes_[std::size_t(first)];
  uint32_t active = 0;
  for (int lane = 0; lane < count; ++lane) active |= uint32_t(sizes[lane] > 0) << lane;
  active &= lanes;
  if (!active) return;

  const int leader = __builtin_ctz(active);
  bool together = true;
  for (uint32_t left = active & (active - 1); left && together; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    together =
        sizes[lane] == sizes[leader] &&
        std::equal(logs[lane].kinds.data(), logs[lane].kinds.data() + sizes[lane], logs[leader].kinds.data());
  }
  if (together)
    count_together(logs, sizes[leader], active, leader);
  else
    count_apart(logs, sizes, active);
  for (uint32_t left = active; left; left &= left - 1) sizes[__builtin_ctz(left)] = 0;
}

void Requests::count_together(const Log* logs, uint32_t size, uint32_t lanes, int leader) {
  const uint64_t* kinds = logs[leader].kinds.data();
  uint64_t addresses[32] = {};
  for (std::size_t i = 0; i < size; ++i) {
    for (uint32_t left = lanes; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      addresses[lane] = logs[lane].addresses[i];
    }
    count(kinds[i], lanes, addresses);
  }
}

void Requests::count_apart(const Log* logs, const uint32_t* sizes, uint32_t lanes) {
  // Of each kind, the addresses of each lane in order.
  std::unordered_map<uint64_t, std::array<std::vector<uint64_t>, 32>> of_kind;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    for (std::size_t i = 0; i < sizes[lane]; ++i)
      of_kind[logs[lane].kinds[i]][std::size_t(lane)].push_back(logs[lane].addresses[i]);
  }
  for (const auto& [kind, of_lane] : of_kind) {
    uint64_t addresses[32] = {};
    for (std::size_t i = 0;; ++i) {
      uint32_t active = 0;
      for (std::size_t lane = 0; lane < 32; ++lane) {
        if (i >= of_lane[lane].size()) continue;
        active |= 1u << lane;
        addresses[lane] = of_lane[lane][i];
      }
      if (!active) break;
      count(kind, active, addresses);
    }
  }
}

void Requests::count(uint64_t packed, uint32_t lanes, const uint64_t* addresses) {
  Recent& recent = recent_[(packed ^ packed >> 29) % recent_.size()];
  if (!recent.counts || recent.kind != packed) recent = {packed, &counts_[packed], {}};
  const Kind kind = Kind::unpacked(packed);
  const Request request{lanes, kind.bytes, addresses};
  Cost cost;
  if (kind.shared) {
    cost = shared_cost(request);
  } else {
    const Sectors sectors = sectors_of(request);
    cost = global_cost(request, sectors);
    // A loop along rows touches the same sectors several times.
    if (sectors.count != recent.sectors.count ||
        !std::equal(sectors.number, sectors.number + sectors.count, recent.sectors.number)) {
      on_sectors_(sectors, kind.access);
      recent.sectors.count = sectors.count;
      std::copy_n(sectors.number, sectors.count, recent.sectors.number);
    }
  }
  recent.counts->add({1, uint64_t(__builtin_popcount(lanes)), cost.units, cost.ideal});
}

}  // namespace flashbook::sim
