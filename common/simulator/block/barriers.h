/// \file
/// The barriers of a block. Internal to the simulator: what kernels call is in barrier.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simulator/barrier.h"
#include "common/simulator/block/scheduler.h"

namespace flashbook::sim {

/// The 16 barriers that __syncthreads and bar.sync name.
class Barriers final : public Awaited {
 public:
  explicit Barriers(Scheduler& scheduler) : scheduler_(scheduler) {}

  void begin_block() {
    barriers_.fill({});
    last_.fill({});
    last_arrivals_.clear();
    second_arrivals_.clear();
  }
  void sync(const char* what, int barrier, int threads, Location where);
  int count(const char* what, bool predicate, Location where);
  void arrive(const char* what, int barrier, int threads, Location where);
  /// The current thread has exited.
  void leave() {
    if (barriers_[0].arrived > 0 && is_full(barriers_[0], barriers_[0].arrived)) complete(barriers_[0], 0);
  }
  /// What stands for __syncthreads where an observer is told of it.
  const void* whole_block() const { return &barriers_[0]; }

  std::string describe_wait(const Thread& thread) const override;
  /// What may be behind an error of the block: threads that arrived twice in a round. Empty if none did.
  std::string suspects() const;
  bool is_suspicious() const { return !second_arrivals_.empty(); }

 private:
  /// A barrier, in one round.
  struct Barrier {
    int expected = 0;  ///< threads that complete the round, or kWholeBlock
    int arrived = 0;
    int yes = 0;                                ///< of those who count
    bool counts = false;                        ///< whether they do
    const char* what = "";                      ///< the first thread's call
    Location where;                             ///< of the first thread
    std::array<uint32_t, kMaxWarps> waiting{};  ///< lanes of each warp
    uint32_t told = 0;                          ///< warps of which an observer knows that they have arrived
    uint32_t warps = 0;                         ///< that have arrived in this round
  };
  /// A barrier's last round that was complete, for require_order.
  struct Round {
    uint64_t turn = 0;  ///< in which it was complete; 0 if there was none
    int expected = 0;
    uint32_t warps = 0;     ///< that took part
    const char* what = "";  ///< as in Barrier
    Location where;
  };

  /// An arrival of a warp's lanes at a barrier, without a wait.
  struct Arrival {
    uint64_t turn = 0;   ///< in which the round before was complete
    uint32_t lanes = 0;  ///< that have arrived in this round
  };
  /// Warps that have arrived again in a round, at that place.
  struct SecondArrival {
    int barrier;
    uint32_t warps;
    const char* what;
    Location where;
  };

  void note_second_arrival(const char* what, int number, Location where);
  static Barrier& arrive_in(Barrier& barrier, const char* what, Location where, bool counts, bool predicate);
  bool follows(int number, int threads, const char* what, Location where);
  void sync_alone(const char* what, int number, int threads, Location where);
  void wait(Barrier& barrier, const char* what, Location where);
  Barrier& count_arrival(const char* what, int barrier, int threads, Location where);
  void require_order(const char* what, int number, int threads, Location where) const;
  bool is_full(const Barrier& barrier, int arrived) const {
    return arrived >= (barrier.expected == kWholeBlock ? scheduler_.alive() : barrier.expected);
  }
  void complete(Barrier& barrier, uint32_t own);
  std::string name_of(const Barrier& barrier) const;
  void log(EventKind kind, const char* what, const Barrier& barrier, Location where) const;
  void tell_of_arriving(Barrier& barrier, int warp) const;

  Scheduler& scheduler_;
  std::array<Barrier, kBarriers> barriers_;
  std::array<Round, kBarriers> last_;           ///< of each barrier
  std::vector<Arrival> last_arrivals_;          ///< by barrier and warp; empty if nobody has arrived so
  std::vector<SecondArrival> second_arrivals_;  ///< by their places in the source
  int counted_ = 0;                             ///< in the last round of barrier 0 that counted
};

}  // namespace flashbook::sim
