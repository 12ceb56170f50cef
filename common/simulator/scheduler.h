/// \file
/// How one block runs. Internal to the simulator: kernels see barrier.h, warp.h and launch.h.
///
/// One OS thread runs a block from its first thread to the exit of its last. A thread runs until it must wait
/// for others; then the next thread that can go on does. The lanes of a warp take turns, so a warp advances
/// nearly in lock-step.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/simulator/async_state.h"
#include "common/simulator/barrier.h"
#include "common/simulator/fiber.h"
#include "common/simulator/launch.h"
#include "common/simulator/location.h"
#include "common/simulator/observer.h"
#include "common/simulator/vector_types.h"
#include "common/simulator/warp.h"
#include "common/simulator/warpgroup.h"

namespace flashbook::sim {

constexpr int kWarpLanes = 32;
constexpr int kMaxThreads = 1024;  ///< of a block
constexpr int kMaxWarps = kMaxThreads / kWarpLanes;

/// What a thread that does not run waits for.
enum class Wait : uint8_t {
  nothing,
  barrier,
  warp,
  warpgroup,
  mbarrier,
  mbarrier_poll,
  memory_poll,
  registers,
  exited
};

/// A cp.async that has not landed yet.
struct PendingCopy {
  unsigned char* shared;
  const void* global;
  std::size_t bytes;  ///< that it writes
  std::size_t valid;  ///< that it reads; the others become zero
  const char* what;
  Location where;
  int group;  ///< the number of the thread's group that it belongs to, committed or not
};

/// A CUDA thread.
struct Thread {
  uint3 index;  ///< threadIdx
  int warp, lane;
  Fiber* fiber = nullptr;  ///< what it runs on; null before it starts and after it exits
  Wait wait = Wait::nothing;
  const char* what = "";  ///< the call in which it last waited, and its place
  Location where;
  int barrier = 0;           ///< of Wait::barrier
  uint32_t mask = 0;         ///< of Wait::warp
  std::size_t mbarrier = 0;  ///< of Wait::mbarrier and Wait::mbarrier_poll, by number
  uint32_t parity = 0;
  int registers = 0;  ///< of Wait::registers
  std::vector<PendingCopy> copies;
  int copy_groups = 0;  ///< that it has committed
  std::vector<TensorStore> stores;
  int store_groups = 0;  ///< that it has committed
};

/// A collective for which some lanes of a warp have come and others have not.
struct Gathering {
  const Collective* collective;
  uint32_t mask;  ///< the lanes it was called for
  uint32_t arrived;
  Location where;  ///< of the first lane
};

/// A warp.
struct Warp {
  uint32_t alive = 0;                 ///< lanes that have not exited
  uint32_t ready = 0;                 ///< lanes that could run now
  std::vector<Gathering> gatherings;  ///< at most one, unless parts of the warp go different ways
  std::array<void*, kWarpLanes> operands{};
  int registers = 0;         ///< of each of its threads
  int register_changes = 0;  ///< how often it executed setmaxnreg
};

/// One of the 16 barriers of a block, in one round.
struct Barrier {
  int expected = 0;  ///< threads that complete the round, or kWholeBlock
  int arrived = 0;
  Location where;                             ///< of the first thread
  std::array<uint32_t, kMaxWarps> waiting{};  ///< lanes of each warp
};

/// SplitMix64: random numbers whose generator costs nothing to seed, once a block.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  /// A number in [0, count).
  int below(int count);

 private:
  uint64_t state_;
};

/// What an OS thread needs to run blocks: stacks, shared memory, and the state of its block. Kept from grid
/// to grid.
class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Prepares the calling OS thread, which must be the one that runs the grid's blocks, and sets its blockDim
  /// and gridDim.
  void enter_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& body);

  /// Runs block `number`, counted x first, on the grid's seed. Returns what went wrong, or nothing.
  std::optional<std::string> run_block(uint64_t number, uint64_t seed);

  // What the running thread calls, by way of barrier.h, warp.h and launch.h.
  void sync(const char* what, int barrier, int threads, Location where);
  void arrive(const char* what, int barrier, int threads, Location where);
  void gather(const Collective& collective, uint32_t mask, void* operand, Location where);
  void gather(const WarpgroupCollective& collective, void* operand, Location where);
  WgmmaQueue& products_of(int warpgroup) { return warpgroups_[std::size_t(warpgroup)].products; }
  int random_below(int count) { return random_.below(count); }
  void copy_async(const PendingCopy& copy);
  void commit_copies();
  void wait_for_copies(int groups_in_flight);
  void wait_for_all_copies();
  void init_mbarrier(void* address, uint32_t arrivals, Location where);
  void name_mbarrier(const void* address, const char* name, int index, Location where);
  void fence_mbarriers();
  void arrive_at_mbarrier(const char* what, const void* address, uint32_t bytes, Location where);
  bool wait_at_mbarrier(const char* what, const void* address, uint32_t parity, bool may_fail,
                        Location where);
  void load_tensor(void* tile, const CUtensorMap& map, const void* barrier, const int* at, int rank,
                   Location where);
  void store_tensor(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where);
  void commit_stores();
  void wait_for_stores(int groups_in_flight);
  void give_registers(int registers, Location where);
  void take_registers(int registers, Location where);
  void poll_memory(const char* what, Location where);
  /// What the watchdog's signal calls: leaves the current thread if it has had the same turn for long.
  void tick();
  unsigned char* dynamic_shared() { return shared_; }
  bool is_shared(const void* address, std::size_t bytes) const;
  std::string describe_address(const void* address) const;
  const Thread& current() const { return *current_; }
  int current_number() const { return number_of(*current_); }
  /// Who watches, or null.
  Observer* observer() const { return observer_.get(); }
  /// Ends the block with an error, from places that no exception can leave. The running thread's frames are
  /// not unwound.
  [[noreturn]] void abandon(const std::string& error);

 private:
  void begin_block(uint64_t number, uint64_t seed);
  static void run_fiber(void* worker);
  void run_threads();
  void run_current();
  void exit_current();
  void suspend(Wait wait, const char* what, Location where);
  void poll(Wait wait, const char* what, Location where);
  bool wake_pollers();
  void progress() { fruitless_polls_ = 0; }
  Thread* next_ready();
  void shuffle_warps();
  Thread* next_thread();
  int number_of(const Thread& thread) const { return int(&thread - threads_.data()); }
  Fiber* idle_fiber();
  void make_ready(int warp, uint32_t lanes);

  Barrier& arrive_at(const char* what, int barrier, int threads, Location where);
  /// `own` is the current thread's lane, if it waits too.
  bool complete_if_full(Barrier& barrier, uint32_t own = 0);
  bool complete_if_full(Warp& warp, std::size_t gathering);
  void tell_of_acquiring(int warp, uint32_t lanes, const void* object);
  /// Throws Error if lanes of the current thread's warp wait in a collective of the warpgroup.
  void require_together(const char* what, Location where) const;
  /// Throws Error if the current thread may not exit because of its warpgroup.
  void leave_warpgroup();
  const Warpgroup* warpgroup_of(const Thread& thread) const;
  std::size_t mbarrier_at(const char* what, const void* address, Location where);
  void pass(Mbarrier& barrier);
  void land_bytes(const char* what, Mbarrier& barrier, std::size_t bytes, Location where);
  void complete_if_over(Mbarrier& barrier);
  void land(const PendingCopy& copy);
  void land_load(const TensorLoad& load);
  bool land_one(bool any);
  void land_store(TensorStore& store);
  void require_stores_waited_for() const;
  std::string register_error() const;
  std::string deadlock_report() const;
  std::vector<std::string> describe_waits(std::size_t warp) const;
  std::string end_report() const;
  std::string endless_report() const;
  std::string describe_wait(const Thread& thread) const;

  std::unique_ptr<Observer> observer_;

  // Of the grid.
  dim3 grid_;
  std::size_t shared_bytes_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::vector<std::span<unsigned char>> static_shared_;

  // Of the block.
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Warpgroup> warpgroups_;  ///< the whole ones
  std::array<Barrier, kBarriers> barriers_;
  std::vector<Mbarrier> mbarriers_;
  std::vector<TensorLoad> loads_;  // that have not landed, the oldest first
  int free_registers_ = 0;         // that a thread of each warp could have more, summed over warps
  std::vector<Thread*> register_waiters_;
  std::vector<Thread*> pollers_;
  int fruitless_polls_ = 0;  // rounds in which all that ran was threads that poll
  int memory_polls_ = 0;     // of the current thread, one after another
  uint64_t turns_ = 0;       // handed out
  uint64_t seen_turns_ = 0;  // at the watchdog's last tick
  int quiet_ticks_ = 0;      // since a turn was handed out
  bool given_up_ = false;    // the current thread, by the watchdog
  uint32_t ready_warps_ = 0;
  int alive_ = 0;
  Thread* current_ = nullptr;
  std::string error_;
  bool random_order_ = false;
  std::array<int, kMaxWarps> priority_{};  // in random order, the ready warp with the highest runs
  int turns_a_priority_ = 1;               // on average, until another warp gets a new one
  Random random_{0};

  // A thread gets a fiber when it starts and leaves it to the next one when it exits: a kernel whose threads
  // never wait runs on a single stack.
  Fiber os_thread_;
  std::unique_ptr<Fiber[]> fibers_;
  int used_fibers_ = 0;
  std::vector<Fiber*> idle_fibers_;

  unsigned char* shared_ = nullptr;
  unsigned char* stacks_ = nullptr;
};

/// What the calling OS thread runs blocks with; null outside a grid.
extern thread_local constinit Worker* current_worker;

/// The worker that runs the calling thread. Throws Error outside a kernel.
Worker& running_worker(const char* what, Location where);

/// "lanes 0-15, 20".
std::string describe_lanes(uint32_t lanes);

/// "cp_async_wait at kernel.cuh:12".
std::string describe_call(const char* what, Location where);

/// "__shfl_sync at kernel.cuh:12 with mask 0x0000ffff".
std::string describe_call(const Collective& collective, Location where, uint32_t mask);

/// "mbarrier full[1]", or where it lies if it has no name. Only while a block runs.
std::string describe(const Mbarrier& barrier);

/// "it is in phase 3 (parity 1), 0 of 2 arrivals pending, 4096 bytes pending".
std::string describe_state(const Mbarrier& barrier);

/// "in block (0,2,0), thread (5,0,0), warp 0, lane 5": the thread that runs.
std::string describe_current(const Thread& thread);

}  // namespace flashbook::sim
