/// \file
/// From what each thread accesses to what its warp requests. Internal to the simulator.
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

/// Which place in the source accesses what, packed into one number: requests of a warp are made of equal
/// ones.
struct Kind {
  Site site;
  uint16_t bytes;  ///< a lane
  Access access;
  bool shared;
  bool unchecked = false;  ///< whether it has still to be held against what others do

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

/// What all requests of one kind came to.
struct Counts {
  uint64_t requests = 0;
  uint64_t lanes = 0;  ///< active ones, summed over requests
  uint64_t units = 0;  ///< sectors or wavefronts
  uint64_t ideal = 0;

  void add(const Counts& other) {
    requests += other.requests;
    lanes += other.lanes;
    units += other.units;
    ideal += other.ideal;
  }
};

/// Lanes of a request that name the same address.
struct SameAddress {
  uint64_t offset;  ///< from the address of the request's first lane, modulo 2^64
  uint32_t lanes;
};

/// Learns what requests are made of.
class RequestSink {
 public:
  /// A request of global memory touches these sectors.
  virtual void touches_sectors(const Sectors& sectors, Access access) = 0;
  /// A thread has made an access of a kind that is unchecked.
  virtual void checks(int thread, const Kind& kind, uint64_t address) = 0;
  /// All lanes of a request of a warp have. `first` is the address of the first of them.
  virtual void checks(int warp, const Kind& kind, uint64_t first, std::span<const SameAddress> parts) = 0;

 protected:
  ~RequestSink() = default;
};

/// Keeps what the threads of a block access until their lanes meet again.
///
/// What is unchecked may wait so long as well, since a check a request costs less than one a lane; whoever
/// changes what such an access is held against asks for the checks first.
///
/// Lanes run one after another here and together on a GPU. Where they meet, in a barrier or a shuffle, the
/// accesses since the last meeting are lined up: if all lanes did the same, the first of each makes the first
/// request, and so on. If they went different ways, the n-th access of a kind makes a request with the n-th
/// of the other lanes that have one.
class Requests {
 public:
  explicit Requests(RequestSink& sink) : sink_(sink) {}

  /// `log` is told of requests, unless it is null.
  void begin(int threads, EventLog* log);
  /// How many accesses of a thread have not been lined up yet.
  uint32_t waiting(int thread) const { return logs_[std::size_t(thread)].size; }
  void add(int thread, uint64_t kind, uint64_t address) {
    if (add_if_room(thread, kind, address)) return;
    grow(logs_[std::size_t(thread)]);
    add_if_room(thread, kind, address);
  }
  /// The same, unless that takes more memory.
  bool add_if_room(int thread, uint64_t kind, uint64_t address) {
    Log& log = logs_[std::size_t(thread)];
    if (log.size == log.capacity) return false;
    log.entries[log.size] = kind;
    log.entries[log.capacity + log.size] = address;
    ++log.size;
    return true;
  }
  /// Whether somebody is told of requests.
  bool is_written_down() const { return log_ != nullptr; }
  /// Adds what all lanes of a warp do at once, lane i at addresses[i]. Nobody may be told of requests.
  void add_together(uint64_t kind, const uint64_t (&addresses)[32]) { count(kind, ~0u, addresses); }
  /// Adds what is of a kind that is unchecked.
  void add_unchecked(int thread, uint64_t kind, uint64_t address) {
    add(thread, kind, address);
    unchecked_lanes_[std::size_t(thread / 32)] |= 1u << thread % 32;
    unchecked_warps_ |= 1u << thread / 32;
    Log& log = logs_[std::size_t(thread)];
    log.open = log.capacity;
  }
  /// The same, unless that takes more memory, or nothing else of this thread is unchecked.
  bool add_another_unchecked(int thread, uint64_t kind, uint64_t address) {
    Log& log = logs_[std::size_t(thread)];
    if (log.size >= log.open) return false;
    log.entries[log.size] = kind;
    log.entries[log.capacity + log.size] = address;
    ++log.size;
    return true;
  }
  /// Has the accesses of this thread checked that still have to be.
  void check(int thread) {
    if (unchecked_lanes_[std::size_t(thread / 32)] >> thread % 32 & 1) check_log(thread);
  }
  /// Those of all threads.
  void check_all() {
    if (unchecked_warps_) check_logs();
  }
  /// Counts what is no request of a warp.
  void add_counts(uint64_t kind, const Counts& counts) { counts_[kind].add(counts); }
  /// Lines up what these lanes of a warp have done.
  void converge(int warp, uint32_t lanes);
  /// Forgets what this thread has done since: it never came to an end.
  void forget(int thread);
  /// Lines up everything: the block ends.
  void finish();

  /// The counts since the last call, by Kind::packed.
  std::unordered_map<uint64_t, Counts> take() {
    for (Recent& recent : recent_) recent.kind = 0;
    return std::exchange(counts_, {});
  }

 private:
  /// What a thread accesses: kinds, and from `capacity` on addresses.
  struct Log {
    std::unique_ptr<uint64_t[]> entries;
    uint32_t size = 0, capacity = 0;
    uint32_t checked = 0;  ///< so many entries need no check any more
    uint32_t open = 0;     ///< the capacity, if the thread is among those with unchecked ones; else 0

    const uint64_t* kinds() const { return entries.get(); }
    const uint64_t* addresses() const { return entries.get() + capacity; }
  };
  /// A kind's last request whose cost was worked out. Another one that is the same but for a shift of all
  /// addresses costs the same, if the shift leaves sectors or banks as they are.
  struct Recent {
    uint64_t kind = 0;
    Counts* counts = nullptr;
    uint32_t lanes = 0, active;  ///< and how many these are
    uint64_t addresses[32];
    Cost cost;
    uint32_t room_before, room_behind;  ///< bytes by which the addresses may shift within their sectors
    int64_t sectors_ahead;              ///< by how many the request before was shifted
    Sectors sectors;                    ///< of global memory
    uint32_t parts_count;               ///< 0: nobody has asked
    std::array<SameAddress, 32> parts;
  };

  /// Requests of one kind, of lanes that went different ways.
  struct Apart {
    struct OfLanes {
      uint32_t lanes = 0;
      uint64_t addresses[32] = {};
    };
    uint64_t kind;
    std::vector<OfLanes> requests;
    std::size_t next;  ///< of the lane whose log is read
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
  /// Whether a request costs what the recent one did; touches its sectors.
  bool is_shifted(Recent& recent, const Kind& kind, uint32_t lanes, const uint64_t* addresses);

  RequestSink& sink_;
  std::vector<Log> logs_;  // of each thread
  std::vector<Log> idle_;  // what empty ones had: of few threads at a time the logs are filled, and cached
  std::array<uint32_t, 32> unchecked_lanes_{};  // of each warp: who has accesses that are unchecked
  uint32_t unchecked_warps_ = 0;
  std::array<Recent, 64> recent_{};  // by a hash of the kind
  std::vector<Apart> apart_;         // kept for their memory
  int threads_ = 0;
  EventLog* log_ = nullptr;
  std::unordered_map<uint64_t, Counts> counts_;
};

}  // namespace flashbook::sim
