/// \file
/// Decides which thread of a block runs. Internal to the simulator.
///
/// One OS thread runs a block from the start of its first thread to the exit of its last. A thread runs until
/// it must wait for others; then the next ready thread runs. The lanes of a warp take turns, so a warp
/// advances almost in lock-step.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/simulator/block/fiber.h"
#include "common/simulator/block/watchdog.h"
#include "common/simulator/events/event_log.h"
#include "common/simulator/language.h"
#include "common/simulator/location.h"
#include "common/simulator/observer.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

constexpr int kWarpLanes = 32;
constexpr int kMaxThreads = 1024;  ///< maximum number of threads per block
constexpr int kMaxWarps = kMaxThreads / kWarpLanes;

/// The minimum stack space for a thread's local variables. (It is smaller on systems that commit memory on
/// allocation instead of on first touch.)
constexpr std::size_t kUsableStackBytes = sizeof(void*) == 4 ? 16 * 1024 : 256 * 1024;

struct Thread;

/// A part of a block in which threads wait, such as the barriers, the mbarriers or a warp. It can describe
/// what a waiting thread is waiting for.
class Awaited {
 public:
  /// Returns what `thread` waits for, phrased to follow "mbarrier_wait at kernel.cuh:12" in a report.
  virtual std::string describe_wait(const Thread& thread) const = 0;

 protected:
  ~Awaited() = default;
};

/// A CUDA thread. (It fills one cache line, since the lanes of a warp constantly switch to each other.)
struct alignas(64) Thread {
  uint3 index;         ///< value of threadIdx
  int number;          ///< number in the block, x first
  int16_t warp, lane;  ///< the same number, split in two
  bool exited = false;
  Fiber* fiber = nullptr;            ///< null before the thread starts and after it exits
  const Awaited* awaited = nullptr;  ///< object at which it last waited; null if it never has
  const char* what = "";             ///< name of the call in which it last waited
  Location where;
};

/// Returns "in block (0,2,0), thread (5,0,0), warp 0, lane 5", for a thread of the current block.
std::string describe_current(const Thread& thread);

struct Meeting;

/// The scheduler's view of a warp.
struct Lanes {
  uint32_t alive = 0;          ///< mask of the lanes that have not exited
  uint32_t ready = 0;          ///< mask of the lanes that can run now
  Thread* first = nullptr;     ///< lane 0; the other lanes follow it in memory
  Meeting* meeting = nullptr;  ///< the lanes' meeting point (warps.h)
};

/// SplitMix64, a random number generator that is cheap to seed, once per block.
class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}
  /// The random numbers of one block of a grid.
  Random(uint64_t seed, uint64_t block);
  /// Returns a random number in [0, count).
  int below(int count);

 private:
  uint64_t state_;
};

/// The block that a scheduler runs.
class Scheduled {
 public:
  /// Runs the current thread from its start to its exit. May throw.
  virtual void run_thread() = 0;
  /// Returns whether copies are in flight that land on their own.
  virtual bool has_copies() const = 0;
  /// Lands one of these copies, either the oldest or any. Returns false if there is none.
  virtual bool land_copy(bool any) = 0;
  /// Notes that for `rounds` rounds, threads have only polled memory. Returns whether another block may still
  /// change the memory that they read.
  virtual bool wait_for_other_blocks(int rounds) = 0;
  /// Notes that these rounds have ended.
  virtual void stop_waiting() = 0;

 protected:
  ~Scheduled() = default;
};

/// The threads of a block and their turns.
class Scheduler {
 public:
  explicit Scheduler(Scheduled& block);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Sets the number of threads of the following blocks. `observer` watches them unless it is null.
  void enter_grid(dim3 block, Observer* observer);
  /// Forgets the last block. The next block uses `random`; `random_order` says whether its warps run in
  /// random order.
  void begin_block(Random random, bool random_order);
  /// Runs all threads until they have exited or none can continue. Returns true if they are waiting for other
  /// blocks on the same OS thread; the next call then continues.
  bool run();

  // The outcome of a run.
  const std::string& error() const { return error_; }  ///< why the block ended; empty if no error
  bool given_up() const { return given_up_; }          ///< whether the watchdog stopped the current thread
  std::optional<Crash> crashed() const { return crashed_; }  ///< the current thread's crash, if any
  const void* bad_address() const { return bad_address_; }   ///< the address whose access crashed
  bool is_polling() const { return !pollers_.empty(); }
  /// Returns whether a polling thread reads memory, which another block may change.
  bool is_polling_memory() const;

  const Thread& current() const { return *current_; }
  const std::vector<Thread>& threads() const { return threads_; }
  int alive() const { return alive_; }  ///< number of threads that have not exited
  int warps() const { return int(warps_.size()); }
  /// Returns the mask of lanes that have not exited.
  uint32_t alive_lanes(int warp) const { return warps_[std::size_t(warp)].alive; }
  Random& random() { return random_; }
  /// Returns the memory of all threads' local variables.
  std::span<const unsigned char> stacks() const;
  /// Returns the thread whose local variable is at this address in a stack; null if the stack is unused.
  const Thread* owner_of_local(const void* address) const;
  /// Returns the number of turns since the start.
  uint64_t turns() const { return turns_; }
  /// Notes that the current thread has waited for others and sees their memory accesses.
  void synchronise() { synchronised_[std::size_t(current_->number)] = turns_; }
  /// Notes that these lanes, which will run again in later turns, see the memory accesses of others.
  void synchronise(int warp, uint32_t lanes) {
    for (; lanes; lanes &= lanes - 1)
      synchronised_[std::size_t(warp * kWarpLanes + __builtin_ctz(lanes))] = turns_ + 1;
  }
  /// Returns whether a thread of the warp has waited for any other thread since that turn.
  bool has_synchronised_since(int warp, uint64_t turn) const;
  /// Returns the turn in which the current thread last synchronised with others; 0 if it never has.
  uint64_t synchronised() const { return synchronised_[std::size_t(current_->number)]; }
  /// Notes that the current thread waits for other blocks. A new turn keeps the watchdog from mistaking the
  /// wait for an endless loop.
  void note_turn() { ++turns_; }
  /// Notes that the current thread has let another block run. This does not count as a turn, since the thread
  /// has done nothing else meanwhile.
  void note_hand_over() { ++hand_overs_; }
  Observer* observer() const { return observer_; }
  /// Returns the log of the block's events; null if they are not logged.
  EventLog* log() const { return log_; }
  void set_log(EventLog* log) { log_ = log; }

  /// Returns the meeting point of the lanes of the current thread's warp.
  Meeting& meeting() const { return *lanes_->meeting; }
  void set_meeting(int warp, Meeting& meeting) { warps_[std::size_t(warp)].meeting = &meeting; }

  /// Runs other threads until the current one, which waits in `awaited`, is made ready again. (Inlined for
  /// the usual case, in which the next thread is another lane of the warp: then a waiting thread need not
  /// save its callers' registers.)
  [[gnu::always_inline]] void suspend(const Awaited& awaited, const char* what, Location where) {
    Thread& self = *current_;
    self.awaited = &awaited;
    self.what = what;
    self.where = where;
    memory_polls_ = 0;
    ++turns_;
    Lanes& lanes = *lanes_;
    const uint32_t ready = lanes.ready;
    if (ready == 0 || !stays_with_warp_) return hand_over(self);
    Thread& next = lanes.first[unsigned(std::countr_zero(ready))];
    Fiber* const fiber = next.fiber;
    if (!fiber || &next == &self) return hand_over(self);
    lanes.ready = ready & (ready - 1);
    if (lanes.ready == 0) ready_warps_ &= ~(1u << self.warp);
    current_ = &next;
    threadIdx = next.index;
    Fiber::switch_to(*self.fiber, *fiber);
  }
  /// Runs other threads until none can run, or until the polled object has made the current one ready.
  void poll(const Awaited& awaited, const char* what, Location where);
  /// Notes that the current thread has read memory with an atomic operation that changed nothing. The thread
  /// may be waiting for another one, which must then get a turn.
  void poll_memory(const char* what, Location where);
  /// Makes waiting threads runnable.
  void make_ready(int warp, uint32_t lanes);
  /// Notes an event that polling threads may have been waiting for.
  void progress() {
    fruitless_polls_ = 0;
    works_again();
  }
  void exit_current();
  /// Ends the block with an error that the current thread did not cause; the thread keeps running until it
  /// waits.
  void fail(std::string error) {
    error_ = std::move(error);
    in_order_ = stays_with_warp_ = false;
  }
  /// Ends the block with an error, from code that must not throw. The current thread's frames are not
  /// unwound.
  [[noreturn]] void abandon(const std::string& error);
  /// For the watchdog's signal handler: leaves the current thread if its turn has lasted too long.
  void tick();
  /// Notes that the current thread has ended its block; the OS thread continues on its own.
  void note_crash(Crash crash) { crashed_ = crash; }
  /// For a signal handler: reports that the processor has refused an instruction of the current thread, which
  /// may have accessed `address`, and leaves the thread. Returns if no thread is running.
  void crash(Crash crash, const void* address);
  const LongTurn& long_turn() const { return long_turn_; }

 private:
  /// The object at which threads wait while they poll memory.
  class Memory final : public Awaited {
    std::string describe_wait(const Thread&) const override { return ", again and again"; }
  };

  void hand_over(Thread& self);
  void run_next(Thread& next);
  static void run_fiber(void* scheduler);
  void run_threads();
  void run_current();
  template <typename Work>
  void run_guarded(const Work& work);
  Thread* next_thread(Fiber& running);
  Thread* next_ready();
  int random_warp();
  bool wake_pollers();
  void works_again() {
    if (!waits_for_blocks_) return;
    waits_for_blocks_ = false;
    stays_with_warp_ = in_order_;
    block_.stop_waiting();
  }
  void shuffle_warps();
  Fiber* idle_fiber();
  void provide_stacks(int count);

  Scheduled& block_;
  Observer* observer_ = nullptr;
  EventLog* log_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Lanes> warps_;
  std::vector<uint64_t> synchronised_;  // the turn of each thread's last synchronisation
  uint32_t ready_warps_ = 0;
  int alive_ = 0;
  Thread* current_ = nullptr;
  Lanes* lanes_ = nullptr;  // lanes of the current thread's warp
  std::string error_;

  Random random_{0};
  bool in_order_ = true;         // false if the order is random or an error has ended the block
  bool stays_with_warp_ = true;  // true in order, unless the block waits for other blocks
  bool in_any_order_ = false;    // whether copies land in random order
  bool random_order_ = false;
  std::array<int, kMaxWarps> priority_{};  // in random order, the ready warp with the highest priority runs
  int turns_a_priority_ = 1;               // average number of turns between changes of a priority

  Memory memory_;
  std::vector<Thread*> pollers_;
  int fruitless_polls_ = 0;        // number of rounds in which only polling threads ran
  int memory_polls_ = 0;           // number of consecutive polls by the current thread
  bool waits_for_blocks_ = false;  // whether the last event was a round of polling memory

  uint64_t turns_ = 0;
  uint64_t hand_overs_ = 0;  // number of turns given to other blocks
  bool is_running_ = false;  // false during setup and cleanup
  LongTurn long_turn_;
  bool given_up_ = false;
  std::optional<Crash> crashed_;
  const void* bad_address_ = nullptr;

  // A thread receives a fiber when it starts and passes it on to the next thread when it exits: a kernel
  // whose threads never wait runs on a single stack.
  Fiber os_thread_;
  Fiber* waiting_fiber_ = nullptr;  // continues when the other blocks of the OS thread have run
  std::unique_ptr<Fiber[]> fibers_;
  int used_fibers_ = 0;     // number of fibers that the block has used
  int guarded_fibers_ = 0;  // number of fibers with a guard at the end of their stacks
  std::vector<Fiber*> idle_fibers_;
  unsigned char* stacks_ = nullptr;
  std::size_t stack_bytes_ = 0;  // total size of the stacks
};

}  // namespace flashbook::sim
