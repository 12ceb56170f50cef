/// \file
/// Combines the accesses of threads into the requests of warps. Internal to the simulator.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simulator/events/event_log.h"
#include "common/simulator/observer.h"
#include "common/simulator/trace/counts.h"
#include "common/simulator/trace/sites.h"

namespace flashbook::sim {

/// An access's source location and type, packed into one number. A request of a warp consists of accesses for
/// which this number is the same.
struct Kind {
  Site site;
  uint16_t bytes;  ///< bytes per lane
  Access access;
  bool shared;
  bool unchecked = false;  ///< whether the access must still be checked for races

  uint64_t packed() const {
    return uint64_t(site) << 32 | uint64_t(bytes) << 16 | uint64_t(access) << 8 | uint64_t(unchecked) << 1 |
           uint64_t(shared);
  }
  static Kind unpacked(uint64_t kind) {
    return {Site(kind >> 32), uint16_t(kind >> 16), Access(kind >> 8 & 0xff), (kind & 1) != 0,
            (kind & kUnchecked) != 0};
  }
  static constexpr uint64_t kUnchecked = 2;
};

/// The totals of all requests of one kind.
struct Counts {
  uint64_t requests = 0;
  uint64_t lanes = 0;  ///< number of active lanes, summed over requests
  uint64_t units = 0;  ///< sectors or wavefronts
  uint64_t ideal = 0;

  void add(const Counts& other) {
    requests += other.requests;
    lanes += other.lanes;
    units += other.units;
    ideal += other.ideal;
  }
};

/// Lanes of a request that access the same address.
struct SameAddress {
  uint64_t offset;  ///< distance from the address of the request's first lane, modulo 2^64
  uint32_t lanes;
};

/// Receives the accesses and sectors of requests.
class RequestSink {
 public:
  /// Notes that a request for global memory accesses these sectors.
  virtual void touches_sectors(const Sectors& sectors, Access access) = 0;
  /// Notes that a thread has made an access that has not been checked yet.
  virtual void checks(int thread, const Kind& kind, uint64_t address) = 0;
  /// Notes that the lanes of a request have made an access that has not been checked yet. `first` is the
  /// first lane's address.
  virtual void checks(int warp, const Kind& kind, uint64_t first, std::span<const SameAddress> parts) = 0;

 protected:
  ~RequestSink() = default;
};

/// Keeps the accesses of a block's threads until the lanes of their warp converge.
///
/// Race checks may wait until then as well, since one check per request costs less than one per lane. Run the
/// pending checks before changing the state against which they will be made.
///
/// The lanes of a warp run one after another here, but together on a GPU. When they converge, in a barrier or
/// a shuffle, the accesses since the last convergence are aligned: if all lanes made the same accesses, the
/// first ones form the first request, and so on. If they took different paths, the n-th access of a kind is
/// combined with the n-th access of every other lane that has one.
class Requests {
 public:
  explicit Requests(RequestSink& sink) : sink_(sink) {}

  /// `log` receives the requests unless it is null.
  void begin(int threads, EventLog* log);
  /// Returns the number of a thread's accesses that have not been aligned yet.
  uint32_t waiting(int thread) const { return logs_[std::size_t(thread)].size; }
  void add(int thread, uint64_t kind, uint64_t address) {
    if (add_if_room(thread, kind, address)) return;
    grow(logs_[std::size_t(thread)]);
    add_if_room(thread, kind, address);
  }
  /// Adds an access if it fits in the available memory.
  bool add_if_room(int thread, uint64_t kind, uint64_t address) {
    Log& log = logs_[std::size_t(thread)];
    if (log.size == log.capacity) return false;
    log.entries[log.size] = kind;
    log.entries[log.capacity + log.size] = address;
    ++log.size;
    return true;
  }
  /// Returns whether requests are logged.
  bool is_written_down() const { return log_ != nullptr; }
  /// Adds an access that all lanes of a warp make at once, lane i at addresses[i]. Works only while requests
  /// are not being logged.
  void add_together(uint64_t kind, const uint64_t (&addresses)[32]) { count(kind, ~0u, addresses); }
  /// Adds an unchecked access.
  void add_unchecked(int thread, uint64_t kind, uint64_t address) {
    add(thread, kind, address);
    unchecked_lanes_[std::size_t(thread / 32)] |= 1u << thread % 32;
    unchecked_warps_ |= 1u << thread / 32;
    Log& log = logs_[std::size_t(thread)];
    log.open = log.capacity;
  }
  /// Adds an unchecked access if it fits in memory and the thread already has unchecked accesses.
  bool add_another_unchecked(int thread, uint64_t kind, uint64_t address) {
    Log& log = logs_[std::size_t(thread)];
    if (log.size >= log.open) return false;
    log.entries[log.size] = kind;
    log.entries[log.capacity + log.size] = address;
    ++log.size;
    return true;
  }
  /// Runs this thread's pending checks.
  void check(int thread) {
    if (unchecked_lanes_[std::size_t(thread / 32)] >> thread % 32 & 1) check_log(thread);
  }
  /// Runs the pending checks of all threads.
  void check_all() {
    if (unchecked_warps_) check_logs();
  }
  /// Adds counts that do not result from a warp's request.
  void add_counts(uint64_t kind, const Counts& counts) { counts_[kind].add(counts); }
  /// Aligns the accesses of these lanes of a warp.
  void converge(int warp, uint32_t lanes);
  /// Drops this thread's pending access, which never finished.
  void forget(int thread);
  /// Aligns all remaining accesses at the end of the block.
  void finish();

  /// Returns the counts since the last call, keyed by Kind::packed.
  std::unordered_map<uint64_t, Counts> take() {
    for (Recent& recent : recent_) recent.kind = 0;
    return std::exchange(counts_, {});
  }

 private:
  /// The accesses of a thread: first their kinds and then, starting at `capacity`, their addresses.
  struct Log {
    std::unique_ptr<uint64_t[]> entries;
    uint32_t size = 0, capacity = 0;
    uint32_t checked = 0;  ///< the number of leading entries that need no more checks
    uint32_t open = 0;     ///< equals the capacity if the thread has unchecked accesses, otherwise 0

    const uint64_t* kinds() const { return entries.get(); }
    const uint64_t* addresses() const { return entries.get() + capacity; }
  };
  /// The last request of a kind whose cost was computed. A request whose addresses are all shifted by the
  /// same distance costs the same if the shift preserves sectors or banks.
  struct Recent {
    uint64_t kind = 0;
    Counts* counts = nullptr;
    uint32_t lanes = 0, active;  ///< all lanes of the request, and the active ones
    uint64_t addresses[32];
    Cost cost;
    uint32_t room_before, room_behind;  ///< bytes by which addresses may shift within their sectors
    int64_t sectors_ahead;              ///< shift of the previous request
    Sectors sectors;                    ///< only for global memory
    uint32_t parts_count;               ///< 0 if not computed yet
    std::array<SameAddress, 32> parts;
  };

  /// The requests of one kind from lanes that took different paths.
  struct Apart {
    struct OfLanes {
      uint32_t lanes = 0;
      uint64_t addresses[32] = {};
    };
    uint64_t kind;
    std::vector<OfLanes> requests;
    std::size_t next;  ///< position in the current lane's log
  };

  void grow(Log& log);
  void empty(Log& log);
  void set_checked(int warp, uint32_t lanes);
  void check_log(int thread);
  void check_logs();
  void count_together(int warp, const Log* logs, uint32_t lanes, int leader);
  void count_apart(const Log* logs, uint32_t lanes);
  void write_down(int warp, const Log* logs, uint32_t lanes) const;
  Recent& count(uint64_t kind, uint32_t lanes, const uint64_t* addresses);
  /// Returns whether a request costs the same as the recent one. If so, notes which sectors it accesses.
  bool is_shifted(Recent& recent, const Kind& kind, uint32_t lanes, const uint64_t* addresses);

  RequestSink& sink_;
  std::vector<Log> logs_;  // one log per thread
  std::vector<Log> idle_;  // memory of empty logs; few are in use at a time, so it stays in the cache
  std::array<uint32_t, 32> unchecked_lanes_{};  // per warp: which lanes have unchecked accesses
  uint32_t unchecked_warps_ = 0;
  std::array<Recent, 64> recent_{};  // indexed by a hash of the kind
  std::vector<Apart> apart_;         // kept to reuse its memory
  int threads_ = 0;
  EventLog* log_ = nullptr;
  std::unordered_map<uint64_t, Counts> counts_;
};

}  // namespace flashbook::sim
