#include "common/simulator/trace/requests.h"

#include <algorithm>

namespace flashbook::sim {

void Requests::begin(int threads) {
  threads_ = threads;
  if (logs_.size() < std::size_t(threads)) logs_.resize(std::size_t(threads));
  for (Log& log : logs_) {
    log.kinds.clear();
    log.addresses.clear();
  }
}

void Requests::finish() {
  for (int warp = 0; warp * 32 < threads_; ++warp) converge(warp, ~0u);
}

void Requests::converge(int warp, uint32_t lanes) {
  const int first = warp * 32, count = std::min(32, threads_ - first);
  Log* logs = &logs_[std::size_t(first)];
  uint32_t active = 0;
  for (int lane = 0; lane < count; ++lane)
    if ((lanes >> lane & 1) && !logs[lane].kinds.empty()) active |= 1u << lane;
  if (!active) return;

  const int leader = __builtin_ctz(active);
  bool together = true;
  for (uint32_t left = active; left && together; left &= left - 1)
    together = logs[__builtin_ctz(left)].kinds == logs[leader].kinds;
  if (together)
    count_together(logs, active, leader);
  else
    count_apart(logs, active);
  for (uint32_t left = active; left; left &= left - 1) {
    logs[__builtin_ctz(left)].kinds.clear();
    logs[__builtin_ctz(left)].addresses.clear();
  }
}

void Requests::count_together(Log* logs, uint32_t lanes, int leader) {
  const std::vector<uint64_t>& kinds = logs[leader].kinds;
  uint64_t addresses[32] = {};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    for (uint32_t left = lanes; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      addresses[lane] = logs[lane].addresses[i];
    }
    count(kinds[i], lanes, addresses);
  }
}

void Requests::count_apart(Log* logs, uint32_t lanes) {
  // Of each kind, the addresses of each lane in order.
  std::unordered_map<uint64_t, std::array<std::vector<uint64_t>, 32>> of_kind;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    for (std::size_t i = 0; i < logs[lane].kinds.size(); ++i)
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
  const Kind kind = Kind::unpacked(packed);
  const Request request{lanes, kind.bytes, addresses};
  Cost cost;
  if (kind.shared) {
    cost = shared_cost(request);
  } else {
    const Sectors sectors = sectors_of(request);
    cost = global_cost(request, sectors);
    on_sectors_(sectors, kind.access);
  }
  counts_[packed].add({1, uint64_t(__builtin_popcount(lanes)), cost.units, cost.ideal});
}

}  // namespace flashbook::sim
