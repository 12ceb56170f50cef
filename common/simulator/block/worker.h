/// \file
/// Runs the blocks of a grid on one OS thread. Internal to the simulator: kernels include barrier.h, warp.h
/// and launch.h.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/simulator/block/addresses.h"
#include "common/simulator/block/async_copies.h"
#include "common/simulator/block/barriers.h"
#include "common/simulator/block/counter_loop.h"
#include "common/simulator/block/mbarriers.h"
#include "common/simulator/block/register_pool.h"
#include "common/simulator/block/scheduler.h"
#include "common/simulator/block/tensor_copies.h"
#include "common/simulator/block/warpgroups.h"
#include "common/simulator/block/warps.h"
#include "common/simulator/observer.h"

namespace flashbook::sim {

/// A grid's other blocks, from the point of view of a block that waits for them.
class OtherBlocks {
 public:
  /// Notes that the calling block is polling memory. Lets other blocks run, and starts new ones if that takes
  /// more OS threads. Returns false if none of them can change that memory any more.
  virtual bool go_on(int rounds) = 0;
  /// Notes that the calling block has stopped polling.
  virtual void stop_waiting() = 0;
  /// Notes that the calling block is about to add to an integer in device memory. Returns true while it
  /// should wait for the other concurrent blocks to reach the same point.
  virtual bool must_wait_at_addition() = 0;
  /// Returns whether blocks switch to each other at random.
  virtual bool hands_over() const = 0;
  /// If they do: notes that the calling block has performed, or is about to perform, an operation that other
  /// blocks can see. Returns whether another block has had a turn.
  virtual bool may_hand_over() = 0;
  /// Returns the number of blocks that run concurrently if the grid has enough blocks.
  virtual uint64_t at_once() const = 0;

 protected:
  ~OtherBlocks() = default;
};

/// Runs blocks, one after another, on one OS thread. A worker is reused for later grids, since setting up its
/// memory is expensive. The parts in which threads wait are members, each with its own file; functions that
/// kernels call find them through running_worker().
class Worker final : Scheduled {
 public:
  /// Prepares the calling OS thread, which must be the one that runs the grid's blocks, and sets blockDim and
  /// gridDim for it. `watcher` may be null.
  void enter_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& body,
                  const void* kernel, Watcher* watcher, OtherBlocks& others);

  /// Runs block `number`, counted x first, with the grid's seed. Returns its error, if any.
  std::optional<std::string> run_block(uint64_t number, uint64_t seed);
  /// The same in three steps, for blocks that share an OS thread. This function begins a block,
  void begin_block(uint64_t number, uint64_t seed);
  /// this one continues it and returns true if the block waits for other blocks,
  bool go_on();
  /// and this one ends it and returns its error, if any.
  std::optional<std::string> end_block();
  /// Describes where all threads are, in one line per group of threads in the same state.
  std::string describe_all_waits() const;
  /// Describes possible causes of an error or a wrong result in the block; empty if there are none.
  std::string suspects() const { return mbarriers.suspects() + barriers.suspects(); }
  /// Returns the report on a block whose current thread crashed in this way (trap.h).
  std::string report_of(Crash crash);

  /// Returns null if there is no watcher.
  Observer* observer() const { return scheduler.observer(); }
  /// Notes that the current thread is about to add to an integer in device memory. The first blocks of a grid
  /// wait for each other before their second addition, so that no block takes all tiles from a counter before
  /// the others have taken one.
  void meets_other_blocks() {
    while (others_->must_wait_at_addition()) scheduler.note_turn();
  }
  /// Notes that the current thread has changed a word that other blocks may read, or is about to read one.
  void meets_others_at_word() {
    if (!hands_over_) [[likely]]
      return;
    if (others_->may_hand_over()) scheduler.note_hand_over();
  }
  int current_number() const { return scheduler.current().number; }
  /// Logs an instruction of the current thread that no other part logs. If the instruction waits, `groups` is
  /// the number of groups that it leaves in flight.
  void tell(const char* what, Location where, int groups = -1) {
    if (scheduler.log()) [[unlikely]]
      write_down(what, where, groups);
  }

  Scheduler scheduler{*this};
  SharedMemory memory;
  Barriers barriers{scheduler};
  Warps warps{scheduler, warpgroups};
  Warpgroups warpgroups{scheduler, warps};
  Mbarriers mbarriers{scheduler};
  AsyncCopies copies{scheduler, mbarriers};
  TensorCopies tensor_copies{scheduler, mbarriers};
  RegisterPool registers{scheduler, warps};
  CounterLoop counter_loop;

 private:
  uint3 index_of(uint64_t number) const;
  void write_down(const char* what, Location where, int groups);
  void write_down_stuck();
  void run_thread() override;
  bool has_copies() const override { return tensor_copies.any_load() || copies.any_tracked(); }
  bool land_copy(bool any) override { return copies.land_one(any) || tensor_copies.land_one(any); }
  bool wait_for_other_blocks(int rounds) override { return others_->go_on(rounds); }
  void stop_waiting() override { others_->stop_waiting(); }
  std::string end_report() const;
  std::string deadlock_report() const;
  std::string endless_report() const;
  std::string crash_report() const;
  std::vector<std::string> describe_waits(int warp) const;

  dim3 grid_;
  uint64_t number_ = 0;  // number of the block in the grid
  OtherBlocks* others_ = nullptr;
  bool hands_over_ = false;  // whether the block switches to other blocks at random
  const std::function<void()>* body_ = nullptr;
  Watcher* watcher_ = nullptr;          // most recent watcher
  std::unique_ptr<Observer> observer_;  // created by that watcher
};

/// The worker of the calling OS thread; null outside a grid.
extern thread_local constinit Worker* current_worker;

/// Returns the worker that runs the calling thread. Throws Error outside a kernel.
Worker& running_worker(const char* what, Location where);

}  // namespace flashbook::sim
