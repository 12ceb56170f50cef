/// \file
/// What the simulator tells whoever watches it. Internal to the simulator: trace/tracer.h is who does.
///
/// Without an observer all of this costs a test of a pointer. Loads and stores of the kernel's own text do
/// not come this way: they come from the calls that the compiler plants before them (trace/entry_points.cpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/simulator/location.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

/// What is done to memory. A volatile store counts as atomic: other threads may be polling there.
enum class Access : uint8_t { load, store, atomic, volatile_load };

constexpr bool writes(Access access) { return access == Access::store || access == Access::atomic; }
/// Whether threads may meet there without a barrier.
constexpr bool meets(Access access) { return access == Access::atomic || access == Access::volatile_load; }

/// The memory that a proxy fence speaks of.
enum class Proxied { shared, global };

/// A launch.
struct Launch {
  dim3 grid, block;
  std::size_t dynamic_shared_bytes = 0;
  const void* kernel = nullptr;  ///< its code, for its name; may be null
  bool dependent = false;        ///< it may begin before the launch before it is over
};

/// A block that is about to run on the calling OS thread.
struct Block {
  uint64_t number;  ///< in its grid, x first
  int threads;
  unsigned char* dynamic_shared;
  std::size_t dynamic_shared_bytes;
  std::span<const std::span<unsigned char>> static_shared;  ///< the `__shared__` arrays
};

/// Memory that an instruction touches.
struct Touched {
  Access access;
  const void* address;
  std::size_t bytes;
  const char* instruction;  ///< its name in reports
  Location where;
};

/// Watches the blocks that one OS thread runs, one after another. A thread is named by its number in the
/// block, x first; lanes of a warp have neighbouring numbers.
///
/// Order between threads comes from objects: a barrier, an mbarrier, a word of memory that atomics act on. A
/// thread that arrives releases; when the round is complete, everything released in it is handed over at
/// once; a thread that saw the completion acquires it. What is released afterwards belongs to the next round.
///
/// The async proxy (TMA, and WGMMA reading its operands in shared memory) works for a thread and beside it.
/// What it was asked to do has a ticket, by which its end is made known.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual void block_begins(const Block& block) = 0;
  virtual void block_ends() = 0;

  /// An instruction of `thread` touches memory now. (cp.async says so when it is issued.)
  virtual void touches(int thread, const Touched& touched) = 0;
  /// The lanes of a warp touch memory at once, lane i what begins at of_lane[i]; the rest is the same.
  virtual void touches_together(int warp, const Touched& touched,
                                std::span<const unsigned char* const, 32> of_lane) {
    for (std::size_t lane = 0; lane < of_lane.size(); ++lane)
      touches(warp * 32 + int(lane),
              {touched.access, of_lane[lane], touched.bytes, touched.instruction, touched.where});
  }
  /// What a cp.async of `thread` writes is on its way from now on.
  virtual void flies(int thread, const Touched& touched) { touches(thread, touched); }
  /// What a cp.async of `thread` wrote has landed, in a wait of that thread.
  virtual void lands(int thread, const Touched& touched) = 0;
  /// These lanes of a warp are at the same place: what they did since the last such call is compared, access
  /// by access.
  virtual void converges(int warp, uint32_t lanes) = 0;

  /// What these lanes of a warp did before, all of them know now. (__syncwarp)
  virtual void joins(int warp, uint32_t lanes) = 0;
  virtual void releases(int thread, const void* object) = 0;
  virtual void completes(const void* object) = 0;
  virtual void acquires(int thread, const void* object) = 0;

  /// What the launch before has done, `thread` knows from now on.
  virtual void waits_for_launch_before(int thread) = 0;
  /// For the block of `thread`, the next launch may begin.
  virtual void lets_dependents_launch(int thread) = 0;
  /// __threadfence: what `thread` knows of now, it hands over with every atomic operation or volatile store
  /// that follows.
  virtual void fences(int thread) = 0;
  /// fence.proxy.async: what `thread` knows of in that memory, the async proxy may read when it works for
  /// this thread or for whoever acquires from it.
  virtual void fences_proxy(int thread, Proxied memory) = 0;
  /// The async proxy begins to work for `object`: what a thread's stores read, what they
  /// write, a warpgroup's WGMMAs, or the mbarrier that a load arrives at. Returns the ticket.
  virtual uint32_t begins_async(const void* object) = 0;
  /// On this ticket, which `thread` had it begin, it reads or writes shared memory from now on.
  virtual void touches_async(int thread, const void* object, uint32_t ticket, const Touched& touched) = 0;
  /// The async proxy reads shared memory also for another warp, which has not waited for the one that is
  /// named by `touches_async`: one of its lanes must know who wrote there.
  virtual void reads_for_warp(int warp, const Touched& touched) = 0;
  /// `thread` has waited until the work up to this ticket was over.
  virtual void knows_async_done(int thread, const void* object, uint32_t ticket) = 0;
  /// The work up to this ticket is over, and `object`, an mbarrier, counts it in its current round.
  virtual void arrives_async(const void* object, uint32_t ticket) = 0;
  /// An instruction works on these registers of `thread`, which the kernel's text knows as a local array.
  virtual void takes_registers(int thread, const void* registers, std::size_t bytes, const char* instruction,
                               Location where) = 0;
  /// `thread` has waited for it.
  virtual void gives_back_registers(int thread, const void* registers) = 0;
  /// On this ticket, which `thread` had it begin, TMA moves these bytes of device memory, a row of its box.
  virtual void streams(int thread, const void* object, uint32_t ticket, const Touched& touched) = 0;
};

/// Gives every OS thread its observer. Grids are watched by whom their launch names.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual std::unique_ptr<Observer> make_observer() = 0;
  virtual void grid_begins(const Launch& launch) = 0;
  /// Returns what the grid did wrong that no block was stopped for, or nothing.
  virtual std::string grid_ends() = 0;
};

}  // namespace flashbook::sim
