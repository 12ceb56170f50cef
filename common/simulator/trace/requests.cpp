#include "common/simulator/trace/requests.h"

#include <algorithm>
#include <map>

namespace flashbook::sim {
namespace {

/// Groups the lanes of a request by address and returns the number of groups.
uint32_t divide(uint32_t lanes, const uint64_t* addresses, std::array<SameAddress, 32>& parts) {
  constexpr std::size_t kPlaces = 64;
  const uint64_t first = addresses[__builtin_ctz(lanes)];
  uint8_t part_at[kPlaces] = {};  // indexed by a hash of the address; 0 if empty
  uint32_t count = 0;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint64_t offset = addresses[lane] - first;
    std::size_t place = (offset ^ offset >> 4 ^ offset >> 8) / 2 % kPlaces;
    while (part_at[place] && parts[part_at[place] - 1u].offset != offset) place = (place + 1) % kPlaces;
    if (!part_at[place]) {
      part_at[place] = uint8_t(count + 1);
      parts[count++] = {offset, 0};
    }
    parts[part_at[place] - 1u].lanes |= 1u << lane;
  }
  return count;
}

}  // namespace

[[gnu::cold]] void Requests::grow(Log& log) {
  if (log.capacity == 0 && !idle_.empty()) {
    log = std::move(idle_.back());
    idle_.pop_back();
    return;
  }
  const uint32_t more = 2 * log.capacity + 64;
  auto larger = std::make_unique_for_overwrite<uint64_t[]>(2 * std::size_t(more));
  std::copy_n(log.kinds(), log.size, larger.get());
  std::copy_n(log.addresses(), log.size, larger.get() + more);
  log.entries = std::move(larger);
  log.capacity = more;
  log.open = 0;
}

void Requests::empty(Log& log) {
  log.size = log.checked = log.open = 0;
  idle_.push_back(std::exchange(log, {}));
}

void Requests::begin(int threads, EventLog* log) {
  threads_ = threads;
  log_ = log;
  if (logs_.size() < std::size_t(threads)) logs_.resize(std::size_t(threads));
  for (Recent& recent : recent_) recent.kind = 0;  // a new grid has not accessed any sectors
}

void Requests::forget(int thread) {
  set_checked(thread / 32, 1u << thread % 32);
  logs_[std::size_t(thread)] = {};
}

void Requests::finish() {
  for (int warp = 0; warp * 32 < threads_; ++warp) converge(warp, ~0u);
}

void Requests::set_checked(int warp, uint32_t lanes) {
  uint32_t& unchecked = unchecked_lanes_[std::size_t(warp)];
  unchecked &= ~lanes;
  if (!unchecked) unchecked_warps_ &= ~(1u << warp);
}

void Requests::check_log(int thread) {
  Log& log = logs_[std::size_t(thread)];
  set_checked(thread / 32, 1u << thread % 32);
  log.open = 0;
  for (std::size_t i = std::exchange(log.checked, log.size); i < log.size; ++i)
    if (log.kinds()[i] & Kind::kUnchecked)
      sink_.checks(thread, Kind::unpacked(log.kinds()[i]), log.addresses()[i]);
}

void Requests::check_logs() {
  for (uint32_t warps = unchecked_warps_; warps; warps &= warps - 1) {
    const int warp = __builtin_ctz(warps);
    for (uint32_t lanes = unchecked_lanes_[std::size_t(warp)]; lanes; lanes &= lanes - 1)
      check_log(warp * 32 + __builtin_ctz(lanes));
  }
}

void Requests::converge(int warp, uint32_t lanes) {
  const int first = warp * 32, count = std::min(32, threads_ - first);
  Log* logs = &logs_[std::size_t(first)];
  uint32_t active = 0;
  for (int lane = 0; lane < count; ++lane) active |= uint32_t(logs[lane].size > 0) << lane;
  active &= lanes;
  if (!active) return;
  if (log_) [[unlikely]]
    write_down(warp, logs, active);

  const int leader = __builtin_ctz(active);
  const auto is_like_leader = [&](const Log& log) {
    return log.size == logs[leader].size &&
           std::equal(log.kinds(), log.kinds() + log.size, logs[leader].kinds());
  };
  bool together = true;
  for (uint32_t left = active & (active - 1); left && together; left &= left - 1)
    together = is_like_leader(logs[__builtin_ctz(left)]);
  if (together) {
    count_together(warp, logs, active, leader);
    set_checked(warp, active);
  } else {
    for (uint32_t left = active; left; left &= left - 1) check(first + __builtin_ctz(left));
    count_apart(logs, active);
  }
  for (uint32_t left = active; left; left &= left - 1) empty(logs[__builtin_ctz(left)]);
}

void Requests::count_together(int warp, const Log* logs, uint32_t lanes, int leader) {
  const uint64_t* of_lane[32];
  uint32_t checked = 0;  // number of entries already checked for some lane
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    of_lane[lane] = logs[lane].addresses();
    checked = std::max(checked, logs[lane].checked);
  }
  uint64_t addresses[32] = {};
  for (std::size_t i = 0; i < logs[leader].size; ++i) {
    if (lanes == ~0u)
      for (std::size_t lane = 0; lane < 32; ++lane) addresses[lane] = of_lane[lane][i];
    else
      for (uint32_t left = lanes; left; left &= left - 1)
        addresses[__builtin_ctz(left)] = of_lane[__builtin_ctz(left)][i];
    const uint64_t kind = logs[leader].kinds()[i];
    Recent& request = count(kind & ~Kind::kUnchecked, lanes, addresses);
    if (!(kind & Kind::kUnchecked)) continue;
    if (i >= checked) {
      if (request.parts_count == 0) request.parts_count = divide(lanes, addresses, request.parts);
      sink_.checks(warp, Kind::unpacked(kind), addresses[leader],
                   {request.parts.data(), request.parts_count});
    } else {
      for (uint32_t left = lanes; left; left &= left - 1)
        if (const int lane = __builtin_ctz(left); i >= logs[lane].checked)
          sink_.checks(warp * 32 + lane, Kind::unpacked(kind), addresses[lane]);
    }
  }
}

void Requests::count_apart(const Log* logs, uint32_t lanes) {
  std::size_t kinds = 0;
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    for (std::size_t i = 0; i < kinds; ++i) apart_[i].next = 0;
    std::size_t at = 0;  // lanes access kinds in nearly the same order
    for (std::size_t i = 0; i < logs[lane].size; ++i) {
      const uint64_t kind = logs[lane].kinds()[i];
      std::size_t tries = 0;
      for (; tries < kinds && apart_[at].kind != kind; ++tries) at = at + 1 < kinds ? at + 1 : 0;
      if (tries == kinds) {
        at = kinds++;
        if (at == apart_.size()) apart_.emplace_back();
        apart_[at].kind = kind;
        apart_[at].requests.clear();
        apart_[at].next = 0;
      }
      Apart& of_kind = apart_[at];
      if (of_kind.next == of_kind.requests.size()) of_kind.requests.emplace_back();
      Apart::OfLanes& request = of_kind.requests[of_kind.next++];
      request.lanes |= 1u << lane;
      request.addresses[lane] = logs[lane].addresses()[i];
    }
  }
  for (std::size_t i = 0; i < kinds; ++i)
    for (const Apart::OfLanes& request : apart_[i].requests)
      count(apart_[i].kind & ~Kind::kUnchecked, request.lanes, request.addresses);
}

/// Logs requests in the order of their first lanes' accesses. The n-th access of a kind is combined with the
/// n-th access of that kind by each other lane.
[[gnu::cold]] void Requests::write_down(int warp, const Log* logs, uint32_t lanes) const {
  struct One {
    uint64_t kind;
    uint32_t lanes = 0;
    std::array<uint32_t, 32> numbers{};  // the number of each lane's access
    std::array<uint64_t, 32> addresses{};
  };
  std::vector<One> requests;
  std::map<std::pair<uint64_t, uint32_t>, std::size_t> known;  // keyed by kind and number of earlier ones
  for (uint32_t left = lanes; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    std::unordered_map<uint64_t, uint32_t> times;
    for (uint32_t i = 0; i < logs[lane].size; ++i) {
      const uint64_t kind = logs[lane].kinds()[i] & ~Kind::kUnchecked;
      const auto [place, is_new] = known.try_emplace({kind, times[kind]++}, requests.size());
      if (is_new) requests.push_back({.kind = kind});
      One& request = requests[place->second];
      request.lanes |= 1u << lane;
      request.numbers[std::size_t(lane)] = i;
      request.addresses[std::size_t(lane)] = logs[lane].addresses()[i];
    }
  }
  for (const One& one : requests) {
    const Kind kind = Kind::unpacked(one.kind);
    const Request request{one.lanes, kind.bytes, one.addresses.data()};
    const Cost cost = kind.shared ? shared_cost(request) : global_cost(request, sectors_of(request));
    ToldAccess access{.what = kind.access == Access::atomic  ? "atomic"
                              : kind.access == Access::store ? "store"
                                                             : "load",
                      .shared = kind.shared,
                      .bytes = kind.bytes,
                      .lanes = one.lanes,
                      .units = cost.units,
                      .ideal = cost.ideal};
    if (const Instruction* instruction = instruction_of(kind.site))
      access.what = instruction->name, access.where = instruction->where;
    else
      access.code = kind.site;
    log_->access(warp, one.numbers, access);
  }
  log_->forget_accesses(warp, lanes);
}

bool Requests::is_shifted(Recent& recent, const Kind& kind, uint32_t lanes, const uint64_t* addresses) {
  if (recent.lanes != lanes) return false;
  const int leader = __builtin_ctz(lanes);
  const uint64_t shift = addresses[leader] - recent.addresses[leader];
  uint64_t other = 0;  // inactive lanes have address 0 in both requests
  for (std::size_t lane = 0; lane < 32; ++lane)
    other |= (addresses[lane] - recent.addresses[lane]) ^ (lanes >> lane & 1 ? shift : 0);
  if (other) return false;
  if (kind.shared) return shift % kBankBytes == 0;
  // Shifts by whole sectors, plus a remainder that keeps every address within its sector.
  const int64_t rest = int64_t(shift % kSectorBytes);
  int64_t ahead = (int64_t(shift) - rest) / int64_t(kSectorBytes);
  if (rest > int64_t(recent.room_behind)) {
    if (int64_t(kSectorBytes) - rest > int64_t(recent.room_before)) return false;
    ++ahead;
  }
  if (ahead == recent.sectors_ahead) return true;
  recent.sectors_ahead = ahead;
  Sectors sectors;
  sectors.count = recent.sectors.count;
  for (uint32_t i = 0; i < sectors.count; ++i) sectors.number[i] = recent.sectors.number[i] + uint64_t(ahead);
  sink_.touches_sectors(sectors, kind.access);
  return true;
}

Requests::Recent& Requests::count(uint64_t packed, uint32_t lanes, const uint64_t* addresses) {
  Recent& recent = recent_[(packed * 0x9e3779b97f4a7c15) >> 58];  // [64]
  const Kind kind = Kind::unpacked(packed);
  if (recent.kind != packed || !is_shifted(recent, kind, lanes, addresses)) {
    if (recent.kind != packed) recent.counts = &counts_[packed];
    recent.kind = packed;
    recent.lanes = lanes;
    recent.active = uint32_t(__builtin_popcount(lanes));
    std::copy_n(addresses, 32, recent.addresses);
    recent.parts_count = 0;
    recent.sectors_ahead = 0;
    const Request request{lanes, kind.bytes, addresses};
    if (kind.shared) {
      recent.cost = shared_cost(request);
    } else {
      recent.sectors = sectors_of(request);
      recent.cost = global_cost(request, recent.sectors);
      sink_.touches_sectors(recent.sectors, kind.access);
      recent.room_before = recent.room_behind = kSectorBytes;
      for (uint32_t left = lanes; left; left &= left - 1) {
        const auto begin = uint32_t(addresses[__builtin_ctz(left)] % kSectorBytes), end = begin + kind.bytes;
        recent.room_before = std::min(recent.room_before, begin);
        recent.room_behind = std::min(recent.room_behind, end > kSectorBytes ? 0 : kSectorBytes - end);
        if (end > kSectorBytes) recent.room_before = 0;
      }
    }
  }
  recent.counts->add({1, recent.active, recent.cost.units, recent.cost.ideal});
  return recent;
}

}  // namespace flashbook::sim
