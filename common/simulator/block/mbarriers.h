/// \file
/// The mbarriers of a block. Internal to the simulator: kernels include mbarrier.h.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/simulator/block/scheduler.h"

namespace flashbook::sim {

/// A thread's arrival at an mbarrier.
struct Arrival {
  uint32_t phase = 0;  ///< number of the phase, from 1; 0 if there was no arrival
  int thread = 0;
  const char* what = "";  ///< name of the call
  Location where;
};

struct Mbarrier {
  const void* address;
  uint32_t arrivals;    ///< arrivals expected per phase
  uint32_t pending;     ///< arrivals still missing in the current phase
  int32_t bytes = 0;    ///< bytes announced in this phase that have not landed; negative if they landed first
  uint32_t phase = 0;   ///< number of the current phase, which is the number of completed ones
  bool fenced = false;  ///< whether the barrier is visible to TMA
  bool passed = false;  ///< whether a wait has observed a completed phase
  int initialiser;      ///< number of the initialising thread in the block
  uint64_t turn;        ///< turn in which the barrier was initialised
  Location where;       ///< location of the initialisation
  Location ended{};     ///< location of the call of mbarrier_inval, if any
  const char* name = nullptr;
  int index = -1;                         ///< index shown with the name, unless negative
  std::array<uint32_t, 32> waiting = {};  ///< mask of each warp's lanes that wait for the phase to complete
  std::vector<uint32_t> seen;             ///< per thread: number of completed phases that it has seen
  std::vector<uint32_t> arrived;          ///< per thread: the phase of its last arrival, counted from 1
  std::vector<uint32_t> waits_before;     ///< per thread: the number of its waits before its last arrival
  std::array<Arrival, 8> first = {};      ///< first arrival in each of the most recent phases
  Arrival brought = {};                   ///< call whose bytes landed last
};

/// Returns "mbarrier full[1]", or the address of an unnamed barrier. Works only while a block runs.
std::string describe(const Mbarrier& barrier);

/// Returns a description such as "it is in phase 3 (parity 1), 0 of 2 arrivals pending, 4096 bytes pending".
std::string describe_state(const Mbarrier& barrier);

/// All mbarriers, by number. The word in shared memory holds only that number and a mark, which distinguishes
/// it from a word that was never initialised or that a tile has overwritten.
class Mbarriers final : public Awaited {
 public:
  explicit Mbarriers(Scheduler& scheduler) : scheduler_(scheduler) {}

  void begin_block();
  void init(void* address, uint32_t arrivals, Location where);
  void inval(void* address, Location where);
  void name(const void* address, const char* name, int index, Location where);
  /// Makes the barriers that the current thread has initialised visible to TMA.
  void fence();
  /// Counts an arrival of the current thread. The phase also waits for `bytes` to land.
  void arrive(const char* what, const void* address, uint32_t bytes, Location where);
  /// Returns whether the phase with that parity has completed. If it has not, waits until it completes or, if
  /// `may_fail` is true, until no other thread can run.
  bool wait(const char* what, const void* address, uint32_t parity, bool may_fail, Location where);
  /// Counts an arrival on behalf of a thread whose copies have landed.
  void arrive_for(std::size_t number, const Arrival& from);
  /// Notes that TMA has delivered this many bytes.
  void land_bytes(std::size_t number, std::size_t bytes, const Arrival& from);

  /// Returns the number of the mbarrier at an address. Throws Error if there is none.
  std::size_t number_at(const char* what, const void* address, Location where) const;
  const Mbarrier& operator[](std::size_t number) const { return barriers_[number]; }

  std::string describe_wait(const Thread& thread) const override;
  /// Describes possible causes of an error in the block: a wait for a phase that its thread had already seen
  /// complete, or a thread that arrived twice in a phase or in two consecutive phases without waiting in
  /// between. All of these are allowed and rarely intended. Empty if there was none.
  std::string suspects() const;
  bool is_suspicious() const { return stale_wait_ || second_arrival_; }
  /// Names the barriers of a stuck block whose announced bytes exceed the bytes that its loads deliver; empty
  /// if there are none.
  std::string missing_bytes() const;
  /// Describes errors that can be detected only at the end of the block; empty if there are none.
  std::string end_error() const;

 private:
  /// A thread's last wait.
  struct Waited {
    std::size_t barrier = 0;
    uint32_t parity = 0;
    uint32_t tried = 0;  ///< phase of its last failed attempt, counted from 1; 0 if none
  };

  /// The first suspicious wait or arrival.
  struct Suspect {
    std::size_t barrier;
    int thread;
    uint32_t phase;
    Location where;
    bool same_phase = true;  ///< whether both arrivals were in the same phase
  };

  uint32_t waits_of(const Thread& thread) const;

  void require_order(const char* what, const Mbarrier& barrier, Location where) const;
  void complete_if_over(Mbarrier& barrier);
  void pass(Mbarrier& barrier);
  void log(EventKind kind, const char* what, const Mbarrier& barrier, Location where, int parity = -1) const;

  Scheduler& scheduler_;
  std::vector<Mbarrier> barriers_;
  std::vector<Waited> waited_;   ///< last wait of each thread
  std::vector<uint32_t> waits_;  ///< number of finished waits of each warp
  std::optional<Suspect> stale_wait_, second_arrival_;
};

}  // namespace flashbook::sim
