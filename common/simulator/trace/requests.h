/// \file
/// From what each thread accesses to what its warp requests. Internal to the simulator.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
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
    const auto self = std::size_t(thread);
    const std::size_t size = sizes_[self];
    Log& log = logs_[self];
    if (size == log.kinds.size()) log.grow();
    log.kinds[size] = kind;
    log.addresses[size] = address;
    sizes_[self] = uint32_t(size + 1);
  }
  /// Counts what is no request of a warp.
  void add_counts(uint64_t kind, const Counts& counts) { counts_[kind].add(counts); }
  /// Lines up what these lanes of a warp have done.
  void converge(int warp, uint32_t lanes);
  /// Lines up everything: the block ends.
  void finish();

  /// The counts since the last call, by Kind::packed.
  std::unordered_map<uint64_t, Counts> take() {
    recent_.fill({});
    return std::exchange(counts_, {});
  }

 private:
  /// What a thread accesses, as far as its entry in sizes_ says.
  struct Log {
    std::vector<uint64_t> kinds, addresses;

    void grow() {
      kinds.resize(2 * kinds.size() + 64);
      addresses.resize(kinds.size());
    }
  };
  /// A kind of which there has been a request lately, and the sectors of the last.
  struct Recent {
    uint64_t kind = 0;
    Counts* counts = nullptr;
    Sectors sectors;
  };

  void count_together(const Log* logs, uint32_t size, uint32_t lanes, int leader);
  void count_apart(const Log* logs, const uint32_t* sizes, uint32_t lanes);
  void count(uint64_t kind, uint32_t lanes, const uint64_t* addresses);

  OnSectors on_sectors_;
  std::vector<Log> logs_;
  std::vector<uint32_t> sizes_;  // of the logs
  std::array<Recent, 64> recent_{};
  int threads_ = 0;
  std::unordered_map<uint64_t, Counts> counts_;
};

}  // namespace flashbook::sim
