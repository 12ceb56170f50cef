/// \file
/// The mbarriers of a block. Internal to the simulator: what kernels call is in mbarrier.h.
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
  uint32_t phase = 0;  ///< counted from 1; 0 if there was none
  int thread = 0;
  const char* what = "";  ///< the call
  Location where;
};

/// An mbarrier.
struct Mbarrier {
  const void* address;
  uint32_t arrivals;    ///< that a phase takes
  uint32_t pending;     ///< arrivals that the running phase lacks
  int32_t bytes = 0;    ///< announced in the running phase and not landed; negative: landed first
  uint32_t phase = 0;   ///< number of the running phase: how many are over
  bool fenced = false;  ///< whether TMA knows of it
  bool passed = false;  ///< whether a wait has found a phase over
  int initialiser;      ///< the thread, by number in the block
  uint64_t turn;        ///< in which it did
  Location where;       ///< of its initialisation
  Location ended{};     ///< where mbarrier_inval did, if it has
  const char* name = nullptr;
  int index = -1;                         ///< of the name, if not negative
  std::array<uint32_t, 32> waiting = {};  ///< lanes of each warp that wait for the end of the phase
  std::vector<uint32_t> seen;             ///< of each thread: how many phases its waits have found over
  std::vector<uint32_t> arrived;          ///< of each thread: the phase of its last arrival, counted from 1
  std::vector<uint32_t> waits_before;     ///< of each thread: how often it had waited then
  std::array<Arrival, 8> first = {};      ///< of the last phases: by whom and where
  Arrival brought = {};                   ///< by whom and where bytes were sent that landed last
};

/// "mbarrier full[1]", or where it lies if it has no name. Only while a block runs.
std::string describe(const Mbarrier& barrier);

/// "it is in phase 3 (parity 1), 0 of 2 arrivals pending, 4096 bytes pending".
std::string describe_state(const Mbarrier& barrier);

/// All of them, by number. The word in shared memory says no more than the number, so that a word that was
/// never initialised, or was overwritten by a tile, is recognised.
class Mbarriers final : public Awaited {
 public:
  explicit Mbarriers(Scheduler& scheduler) : scheduler_(scheduler) {}

  void begin_block();
  void init(void* address, uint32_t arrivals, Location where);
  void inval(void* address, Location where);
  void name(const void* address, const char* name, int index, Location where);
  /// Tells TMA of those that the current thread has initialised.
  void fence();
  /// A thread's arrival, for which `bytes` must land too.
  void arrive(const char* what, const void* address, uint32_t bytes, Location where);
  /// Whether the phase of that parity is over. If not, waits for it: until it is, or, if the wait `may_fail`,
  /// until no other thread can run.
  bool wait(const char* what, const void* address, uint32_t parity, bool may_fail, Location where);
  /// Bytes that TMA has brought.
  void land_bytes(std::size_t number, std::size_t bytes, const Arrival& from);

  /// The number of the one at an address. Throws Error if there is none.
  std::size_t number_at(const char* what, const void* address, Location where) const;
  const Mbarrier& operator[](std::size_t number) const { return barriers_[number]; }

  std::string describe_wait(const Thread& thread) const override;
  /// What may be behind an error of the block: a wait that found over what its thread had found over before,
  /// or a thread that arrived twice in a phase, or in the next without a wait in between. All are allowed,
  /// and rarely meant. Empty if there was none.
  std::string suspects() const;
  bool is_suspicious() const { return stale_wait_ || second_arrival_; }
  /// Of a block that is stuck, who announced more bytes than loads bring; empty if nobody did.
  std::string missing_bytes() const;
  /// What a block did wrong that only its end shows; empty if nothing.
  std::string end_error() const;

 private:
  /// What a thread last waited for.
  struct Waited {
    std::size_t barrier = 0;
    uint32_t parity = 0;
    uint32_t tried = 0;  ///< the phase for which it has tried in vain, counted from 1; 0 if for none
  };

  /// The first wait, or arrival, that was odd.
  struct Suspect {
    std::size_t barrier;
    int thread;
    uint32_t phase;
    Location where;
    bool same_phase = true;  ///< whether both arrivals were in that phase
  };

  uint32_t waits_of(const Thread& thread) const;

  void require_order(const char* what, const Mbarrier& barrier, Location where) const;
  void complete_if_over(Mbarrier& barrier);
  void pass(Mbarrier& barrier);
  void log(EventKind kind, const char* what, const Mbarrier& barrier, Location where, int parity = -1) const;

  Scheduler& scheduler_;
  std::vector<Mbarrier> barriers_;
  std::vector<Waited> waited_;   ///< of each thread
  std::vector<uint32_t> waits_;  ///< of each warp: how often one of its waits was over
  std::optional<Suspect> stale_wait_, second_arrival_;
};

}  // namespace flashbook::sim
