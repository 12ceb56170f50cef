#include "common/simulator/trace/requests.h"

#include <algorithm>

namespace flashbook::sim {

void Requests::grow(Log& log) {
  if (log.capacity == 0 && !idle_.empty()) {
    log = std::move(idle_.back());
    idle_.pop_back();
    return;
  }
  const uint32_t more = 2 * log.capacity + 64;
  auto larger = std::make_unique<uint64_t[]>(2 * std::size_t(more));
  std::copy_n(log.kinds(), log.size, larger.get());
  std::copy_n(log.addresses(), log.size, larger.get() + more);
  log.entries = std::move(larger);
  log.capacity = more;
}

void Requests::empty(Log& log) {
  log.size = 0;
  idle_.push_back(std::move(log));
  log.capacity = 0;
}

void Requests::begin(int threads) {
  threads_ = threads;
  if (logs_.size() < std::size_t(threads)) logs_.resize(std::size_t(threads));
  for (Recent& recent : recent_) recent.kind = 0;  // another grid may have begun, which has touched no sector
}

void Requests::finish() {
  for (int warp = 0; warp * 32 < threads_; ++warp) converge(warp, ~0u);
}

void Requests::converge(int warp, uint32_t lanes) {
  const int first = warp * 32, count = std::min(32, threads_ - first);
  Log* logs = &logs_[std::size_t(first)];
  uint32_t active = 0;
  for (int lane = 0; lane < count; ++lane) active |= uint32_t(logs[lane].size > 0) << lane;
  active &= lanes;
  if (!active) return;

  const int leader = __builtin_ctz(active);
  const auto is_like_leader = [&](const Log& log) {
    return log.size == logs[leader].size &&
           std::equal(log.kinds(), log.kinds() + log.size, logs[leader].kinds());
  };
  bool together = true;
  for (uint32_t left = active & (active - 1); left && together; left &= left - 1)
    together = is_like_leader(logs[__builtin_ctz(left)]);
  if (together)
    count_together(logs, active, leader);
  else
    count_apart(logs, active);
  for (uint32_t left = active; left; left &= left - 1) empty(logs[__builtin_ctz(left)]);
}

void Requests::count_together(const Log* logs, uint32_t lanes, int leader) {
  const uint64_t* of_lane[32];
  for (uint32_t left = lanes; left; left &= left - 1)
    of_lane[__builtin_ctz(left)] = logs[__builtin_ctz(left)].addresses();
  uint64_t addresses[32] = {};
  for (std::size_t i = 0; i < logs[leader].size; ++i) {
    if (lanes == ~0u)
      for (std::size_t lane = 0; lane < 32; ++lane) addresses[lane] = of_lane[lane][i];
    else
      for (uint32_t left = lanes; left; left &= left - 1)
        addresses[__builtin_ctz(left)] = of_lane[__builtin_ctz(left)][i];
    count(logs[leader].kinds()[i], lanes, addresses);
  }
}

void Requests::count_apart(const Log* logs, uint32_t lanes) {
  // Of each kind, the addresses of each lane in order.
  std::unordered_map<uint64_t, std::array<std::vector<uint64_t>, 32>> of_kind;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    for (std::size_t i = 0; i < logs[lane].size; ++i)
      of_kind[logs[lane].kinds()[i]][std::size_t(lane)].push_back(logs[lane].addresses()[i]);
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

bool Requests::is_shifted(const Recent& recent, const Kind& kind, uint32_t lanes, const uint64_t* addresses) {
  if (recent.lanes != lanes) return false;
  const int leader = __builtin_ctz(lanes);
  const uint64_t shift = addresses[leader] - recent.addresses[leader];
  uint64_t other = 0;  // lanes that take no part have address 0 in both
  for (std::size_t lane = 0; lane < 32; ++lane)
    other |= (addresses[lane] - recent.addresses[lane]) ^ (lanes >> lane & 1 ? shift : 0);
  if (other) return false;
  if (kind.shared) return shift % kBankBytes == 0;
  if (int64_t(shift) >= -int64_t(recent.room_before) && int64_t(shift) <= int64_t(recent.room_behind))
    return true;
  if (shift % kSectorBytes != 0) return false;
  Sectors sectors = recent.sectors;
  for (uint32_t i = 0; i < sectors.count; ++i)
    sectors.number[i] += uint64_t(int64_t(shift) / int64_t(kSectorBytes));
  on_sectors_(sectors, kind.access);
  return true;
}

void Requests::count(uint64_t packed, uint32_t lanes, const uint64_t* addresses) {
  Recent& recent = recent_[(packed ^ packed >> 29 ^ packed >> 37) % recent_.size()];
  const Kind kind = Kind::unpacked(packed);
  if (recent.kind != packed || !is_shifted(recent, kind, lanes, addresses)) {
    if (recent.kind != packed) recent.counts = &counts_[packed];
    recent.kind = packed;
    recent.lanes = lanes;
    std::copy_n(addresses, 32, recent.addresses);
    const Request request{lanes, kind.bytes, addresses};
    if (kind.shared) {
      recent.cost = shared_cost(request);
    } else {
      recent.sectors = sectors_of(request);
      recent.cost = global_cost(request, recent.sectors);
      on_sectors_(recent.sectors, kind.access);
      recent.room_before = recent.room_behind = kSectorBytes;
      for (uint32_t left = lanes; left; left &= left - 1) {
        const auto begin = uint32_t(addresses[__builtin_ctz(left)] % kSectorBytes), end = begin + kind.bytes;
        recent.room_before = std::min(recent.room_before, begin);
        recent.room_behind = std::min(recent.room_behind, end > kSectorBytes ? 0 : kSectorBytes - end);
        if (end > kSectorBytes) recent.room_before = 0;
      }
    }
  }
  recent.counts->add({1, uint64_t(__builtin_popcount(lanes)), recent.cost.units, recent.cost.ideal});
}

}  // namespace flashbook::sim
