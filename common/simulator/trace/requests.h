/// \file
/// From what each thread accesses to what its warp requests. Internal to the simulator.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

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

  uint64_t packed() const {
    return uint64_t(site) << 32 | uint64_t(bytes) << 16 | uint64_t(access) << 8 | uint64_t(shared);
  }
  static Kind unpacked(uint64_t kind) {
    return {Site(kind >> 32), uint16_t(kind >> 16), Access(kind >> 8 & 0xff), (kind & 1) != 0};
  }
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

/// Keeps what the threads of a block access until their lanes meet again.
///
/// Lanes run one after another here and together on a GPU. Where they meet, in a barrier or a shuffle, the
/// accesses since the last meeting are lined up: if all lanes did the same, the first of each makes the first
/// request, and so on. If they went different ways, the n-th access of a kind makes a request with the n-th
/// of the other lanes that have one.
class Requests {
 public:
  /// Told of the sectors of each request of global memory.
  using OnSectors = std::function<void(const Sectors&, Access)>;

  explicit Requests(OnSectors on_sectors) : on_sectors_(std::move(on_sectors)) {}

  void begin(int threads);
  void add(int thread, uint64_t kind, uint64_t address) {
    Log& log = logs_[std::size_t(thread)];
    if (log.size == log.capacity) grow(log);
    log.entries[log.size] = kind;
    log.entries[log.capacity + log.size] = address;
    ++log.size;
  }
  /// Counts what is no request of a warp.
  void add_counts(uint64_t kind, const Counts& counts) { counts_[kind].add(counts); }
  /// Lines up what these lanes of a warp have done.
  void converge(int warp, uint32_t lanes);
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

    const uint64_t* kinds() const { return entries.get(); }
    const uint64_t* addresses() const { return entries.get() + capacity; }
  };
  /// A kind's last request whose cost was worked out. Another one that is the same but for a shift of all
  /// addresses costs the same, if the shift leaves sectors or banks as they are.
  struct Recent {
    uint64_t kind = 0;
    Counts* counts = nullptr;
    uint32_t lanes = 0;
    uint64_t addresses[32];
    Cost cost;
    uint32_t room_before, room_behind;  ///< bytes by which the addresses may shift within their sectors
    Sectors sectors;                    ///< of global memory
  };

  void grow(Log& log);
  void empty(Log& log);
  void count_together(const Log* logs, uint32_t lanes, int leader);
  void count_apart(const Log* logs, uint32_t lanes);
  void count(uint64_t kind, uint32_t lanes, const uint64_t* addresses);
  /// Whether a request costs what the recent one did; touches its sectors.
  bool is_shifted(const Recent& recent, const Kind& kind, uint32_t lanes, const uint64_t* addresses);

  OnSectors on_sectors_;
  std::vector<Log> logs_;  // of each thread
  std::vector<Log> idle_;  // what empty ones had: of few threads at a time the logs are filled, and cached
  std::array<Recent, 64> recent_{};
  int threads_ = 0;
  std::unordered_map<uint64_t, Counts> counts_;
};

}  // namespace flashbook::sim
