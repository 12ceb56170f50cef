/// \file
/// The interface through which the simulator reports to a watcher. Internal to the simulator; trace/tracer.h
/// implements it.
///
/// Without an observer, each report costs only a test of a pointer. Loads and stores in the kernel's own code
/// are not reported here but by the calls that the compiler inserts before them (trace/entry_points.cpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/simulator/location.h"
#include "common/simulator/vector_types.h"

namespace flashbook::sim {

/// A kind of access. A volatile store counts as atomic, since other threads may be polling its target.
enum class Access : uint8_t { load, store, atomic, volatile_load };

constexpr bool writes(Access access) { return access == Access::store || access == Access::atomic; }
/// Returns whether threads may access the same word in this way without a barrier between them.
constexpr bool meets(Access access) { return access == Access::atomic || access == Access::volatile_load; }

/// The memory that a proxy fence covers.
enum class Proxied { shared, global };

struct Launch {
  dim3 grid, block;
  std::size_t dynamic_shared_bytes = 0;
  const void* kernel = nullptr;  ///< address of the kernel's code, used to find its name; may be null
  bool dependent = false;        ///< whether it may begin before the previous launch has finished
};

/// A block that is about to run on the calling OS thread.
struct Block {
  uint64_t number;  ///< number in its grid, x first
  int threads;
  unsigned char* dynamic_shared;
  std::size_t dynamic_shared_bytes;
  std::span<const std::span<unsigned char>> static_shared;  ///< the block's `__shared__` arrays
};

/// The memory that an instruction accesses.
struct Touched {
  Access access;
  const void* address;
  std::size_t bytes;
  const char* instruction;  ///< name of the instruction in reports
  Location where;
};

/// Watches the blocks that one OS thread runs, one after another. Threads are numbered within their block, x
/// first, so the lanes of a warp have consecutive numbers.
///
/// Barriers, mbarriers, and words of memory used by atomics establish order between threads. A thread that
/// arrives releases. When the round is complete, everything released in it is published at once; a thread
/// that saw the completion acquires it. Later releases belong to the next round.
///
/// The async proxy (TMA, and WGMMA reading its operands in shared memory) works on behalf of a thread and
/// concurrently with that thread. Each piece of its work has a ticket, by which its end is reported.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual void block_begins(const Block& block) = 0;
  virtual void block_ends() = 0;

  /// An instruction of `thread` accesses memory now. (A cp.async does so when it is issued.)
  virtual void touches(int thread, const Touched& touched) = 0;
  /// The lanes of a warp access memory at once, lane i at of_lane[i]; the accesses are otherwise identical.
  virtual void touches_together(int warp, const Touched& touched,
                                std::span<const unsigned char* const, 32> of_lane) {
    for (std::size_t lane = 0; lane < of_lane.size(); ++lane)
      touches(warp * 32 + int(lane),
              {touched.access, of_lane[lane], touched.bytes, touched.instruction, touched.where});
  }
  /// A cp.async of `thread` that writes this memory is now in flight.
  virtual void flies(int thread, const Touched& touched) { touches(thread, touched); }
  /// The data of a cp.async has landed, during a wait of its thread.
  virtual void lands(int thread, const Touched& touched) = 0;
  /// These lanes of a warp have reconverged: their actions since the last such call are compared access by
  /// access.
  virtual void converges(int warp, uint32_t lanes) = 0;

  /// These lanes of a warp now see each other's earlier accesses (__syncwarp).
  virtual void joins(int warp, uint32_t lanes) = 0;
  virtual void releases(int thread, const void* object) = 0;
  virtual void completes(const void* object) = 0;
  virtual void acquires(int thread, const void* object) = 0;

  /// From now on, `thread` sees all accesses of the previous launch.
  virtual void waits_for_launch_before(int thread) = 0;
  /// The next launch may begin, as far as the block of `thread` is concerned.
  virtual void lets_dependents_launch(int thread) = 0;
  /// __threadfence: from now on, every atomic operation or volatile store of `thread` publishes whatever the
  /// thread sees at this point.
  virtual void fences(int thread) = 0;
  /// fence.proxy.async: the async proxy may now read whatever `thread` sees in that memory, when it works for
  /// this thread or for a thread that acquires from it.
  virtual void fences_proxy(int thread, Proxied memory) = 0;
  /// The async proxy begins work that `object` tracks: the reads of a thread's stores, their writes, a
  /// warpgroup's WGMMAs, or the mbarrier at which a load arrives. Returns the ticket.
  virtual uint32_t begins_async(const void* object) = 0;
  /// The work with this ticket, issued by `thread`, accesses shared memory from now on.
  virtual void touches_async(int thread, const void* object, uint32_t ticket, const Touched& touched) = 0;
  /// The async proxy also reads shared memory on behalf of a warp other than the one named in
  /// `touches_async`, and that warp has not waited: one of its lanes must see the data written there.
  virtual void reads_for_warp(int warp, const Touched& touched) = 0;
  /// `thread` has waited for all work up to this ticket.
  virtual void knows_async_done(int thread, const void* object, uint32_t ticket) = 0;
  /// The work up to this ticket has finished and counts towards the current round of `object`, an mbarrier.
  virtual void arrives_async(const void* object, uint32_t ticket) = 0;
  /// An instruction works on these registers of `thread`, which are a local array in the kernel's source.
  virtual void takes_registers(int thread, const void* registers, std::size_t bytes, const char* instruction,
                               Location where) = 0;
  /// `thread` has waited for that instruction to complete.
  virtual void gives_back_registers(int thread, const void* registers) = 0;
  /// TMA moves these bytes of device memory, a row of its box. `thread` issued the copy with this ticket.
  virtual void streams(int thread, const void* object, uint32_t ticket, const Touched& touched) = 0;
};

/// Provides an observer for every OS thread. A launch names the watcher of its grid.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual std::unique_ptr<Observer> make_observer() = 0;
  virtual void grid_begins(const Launch& launch) = 0;
  /// Returns the errors of the grid that did not stop a block; empty if there are none.
  virtual std::string grid_ends() = 0;
};

}  // namespace flashbook::sim
