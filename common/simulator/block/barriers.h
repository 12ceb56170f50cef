/// \file
/// The barriers of a block. Internal to the simulator: kernels include barrier.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simulator/barrier.h"
#include "common/simulator/block/scheduler.h"

namespace flashbook::sim {

/// The 16 barriers of __syncthreads and bar.sync.
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
  /// Notes that the current thread has exited.
  void leave() {
    if (barriers_[0].arrived > 0 && is_full(barriers_[0], barriers_[0].arrived)) complete(barriers_[0], 0);
  }
  /// Returns the object that identifies __syncthreads to an observer.
  const void* whole_block() const { return &barriers_[0]; }

  std::string describe_wait(const Thread& thread) const override;
  /// Describes a possible cause of an error: threads that arrived twice in a round. Empty if none did.
  std::string suspects() const;
  bool is_suspicious() const { return !second_arrivals_.empty(); }

 private:
  /// The current round of a barrier.
  struct Barrier {
    int expected = 0;  ///< number of threads that complete the round, or kWholeBlock
    int arrived = 0;
    int yes = 0;                                ///< number of true predicates, if they are counted
    bool counts = false;                        ///< whether predicates are counted
    const char* what = "";                      ///< name of the first arriving thread's call
    Location where;                             ///< location of that call
    std::array<uint32_t, kMaxWarps> waiting{};  ///< mask of the waiting lanes of each warp
    uint32_t told = 0;                          ///< mask of the warps already reported to the observer
    uint32_t warps = 0;                         ///< mask of the warps that have arrived in this round
  };
  /// The last complete round of a barrier, for require_order.
  struct Round {
    uint64_t turn = 0;  ///< turn in which the round completed; 0 if there was none
    int expected = 0;
    uint32_t warps = 0;     ///< mask of the warps that took part
    const char* what = "";  ///< name of the call, as in Barrier
    Location where;
  };

  /// The lanes of a warp that have arrived at a barrier without waiting.
  struct Arrival {
    uint64_t turn = 0;   ///< turn in which the previous round completed
    uint32_t lanes = 0;  ///< mask of the lanes that have arrived in this round
  };
  /// Warps that have arrived a second time in a round, all at the same place in the source.
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
  std::array<Round, kBarriers> last_;           ///< last round of each barrier
  std::vector<Arrival> last_arrivals_;          ///< per barrier and warp; empty until there is one
  std::vector<SecondArrival> second_arrivals_;  ///< second arrivals, one entry per place in the source
  int counted_ = 0;  ///< number of true predicates in the last round of barrier 0 that counted them
};

}  // namespace flashbook::sim
