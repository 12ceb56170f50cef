/// \file
/// The observer that traces. Internal to the simulator.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"
#include "common/simulator/observer.h"
#include "common/simulator/trace/block_order.h"
#include "common/simulator/trace/clocks.h"
#include "common/simulator/trace/device_memory.h"
#include "common/simulator/trace/faults.h"
#include "common/simulator/trace/requests.h"
#include "common/simulator/trace/shared_races.h"
#include "common/simulator/trace/suspicions.h"
#include "common/simulator/trace/trace.h"
#include "common/simulator/trace/volatile_words.h"

namespace flashbook::sim {

/// What all tracers of a grid share.
struct GridTrace {
  /// `before`: the launch before, if that may still be running, else null.
  GridTrace(const Launch& launch, const std::shared_ptr<GridTrace>& before);

  /// A launch that may still be running when this one begins.
  struct Earlier {
    std::shared_ptr<const GridTrace> launch;
    int distance;           ///< 1 for the launch before
    bool ends_before_wait;  ///< whether it is over when the launch before is
  };

  Launch launch;
  DeviceMemory memory;     ///< what is allocated
  DeviceMemory variables;  ///< of the program: those that a kernel can name are `__device__`
  std::vector<Earlier> earlier;
  std::atomic<bool> has_waited{false};  ///< whether a thread has, for the launch before
  /// Whether a block lets the next launch begin, or ends, and does not know that the launch before is over.
  std::atomic<bool> lets_go_early{false};
  Published published;
  std::mutex mutex;  ///< of what follows
  std::unordered_map<uint64_t, Counts> counts;
  uint64_t busy_blocks = 0;  ///< that asked for anything
  uint64_t barriers = 0;
  Faults faults;
};

/// Nothing is ever mapped below: an index from a null pointer leads here.
constexpr std::uintptr_t kLowestAddress = 0x10000;

/// Traces the blocks of one OS thread.
class Tracer final : public Observer, RequestSink {
 public:
  void block_begins(const Block& block) override;
  void block_ends() override;

  /// Whether an address is that of a local variable: most that are not global or shared memory are.
  bool is_local(std::uintptr_t address) const { return address - stacks_begin_ < stacks_bytes_; }
  /// Whether an address may be global or shared memory, or leads nowhere. All others, locals above all, are
  /// no concern.
  bool concerns(std::uintptr_t address) const {
    return address - global_begin_ < kGlobalBytes || address - dynamic_begin_ < kMaxSharedBytes ||
           address - static_begin_ < static_end_ - static_begin_ ||
           address - variables_begin_ < variables_bytes_ || address < kLowestAddress;
  }
  /// Whether an address is in device memory, a variable's or allocated.
  bool is_of_device(std::uintptr_t address) const {
    return address - global_begin_ < kGlobalBytes || address - variables_begin_ < variables_bytes_;
  }
  /// A local variable: it may be an accumulator, or another thread's.
  [[gnu::always_inline]] void accesses_local(int thread, Access access, std::uintptr_t address,
                                             const void* return_address) const {
    // The thread's own begin where its stack ends now. Half a stack away begin those of a neighbour. (Either
    // check is the last thing that happens, so that nothing is saved for it.)
    if (address - stack_pointer() >= kUsableStackBytes / 2) [[unlikely]]
      return check_owner(thread, access, address, return_address);
    if (accumulators_ > 0) check_accumulators(thread, access, address, return_address);
  }
  /// Any other address: a variable of the OS thread's, such as threadIdx, or memory that is none of a GPU's.
  /// Only the kernel's own code counts: the simulator's may call functions of which the linker took a traced
  /// copy.
  void accesses_elsewhere(Access access, std::uintptr_t address, std::size_t bytes,
                          const void* return_address) {
    if (address - own_begin_ >= own_bytes_ && std::uintptr_t(return_address) - kernel_begin_ < kernel_bytes_)
      check_host(access, address, bytes, return_address);
  }
  /// The thread that runs.
  int thread() const { return scheduler_->current().number; }
  /// Notes a plain, aligned load of the kernel's own text, if it can be no fault, or is checked later: most
  /// are. (It calls nothing, so that few registers are saved for it, and is put into its callers, which know
  /// `bytes`.)
  [[gnu::always_inline]] bool notes_load(std::uintptr_t address, std::size_t bytes,
                                         const void* return_address) {
    if (!suspicions_.none()) return false;
    const Site site = site_of_code(return_address);
    const SharedArray& array = address - recent_.begin < recent_.bytes ? recent_ : other_;
    if (const std::size_t at = address - array.begin; at < array.bytes)
      return bytes <= array.bytes - at && (address & (bytes - 1)) == 0 &&
             requests_.add_another_unchecked(
                 thread(), Kind{site, uint16_t(bytes), Access::load, true, true}.packed(), address);
    if (is_local(address)) {
      accesses_local(thread(), Access::load, address, return_address);
      return true;
    }
    return known_reads_ && known_reads_->is_known_read(address, bytes) &&
           requests_.add_if_room(thread(), Kind{site, uint16_t(bytes), Access::load, false}.packed(),
                                 address);
  }
  /// Whether an address lies in one of the two shared arrays that were accessed last: most do.
  bool is_in_recent_array(std::uintptr_t address) {
    if (address - recent_.begin < recent_.bytes) return true;
    if (address - other_.begin >= other_.bytes) return false;
    std::swap(recent_, other_);
    return true;
  }
  /// A plain load or store of the kernel's own text there.
  void accesses_recent_array(int thread, Access access, std::uintptr_t address, std::size_t bytes,
                             bool aligned, const void* return_address);
  /// A load or store of the kernel's own text, at such an address. What is atomic, or volatile, publishes
  /// what the thread has fenced before it happens.
  void accesses(int thread, Access access, std::uintptr_t address, std::size_t bytes, bool aligned,
                const void* return_address);

  /// An atomic operation on a word. In device memory, what it holds then and what is published there go
  /// together.
  template <typename T, typename Operation>
  auto changes_word(int thread, const volatile T* word, const Operation& operation, bool may_fail = false) {
    const auto at = std::uintptr_t(word);
    if (!is_of_device(at)) return operation();
    const std::lock_guard lock(grid_->published.values());
    const T before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    const auto result = operation();
    order_.note_value(thread, at, before, __atomic_load_n(word, __ATOMIC_SEQ_CST), may_fail);
    return result;
  }
  /// The value that an atomic load of a word in device memory gets, or an operation that leaves it as it is:
  /// the earliest possible. What had been published by then is acquired.
  template <typename T>
  T loads_word(int thread, Access access, const volatile T* word, const void* return_address) {
    const auto at = std::uintptr_t(word);
    T value{};
    acquires_past_ =
        is_allocated(const_cast<const T*>(word), sizeof(T)) || at - global_begin_ >= kGlobalBytes;
    if (acquires_past_) {
      const std::lock_guard lock(grid_->published.values());
      value = T(order_.read(thread, at, __atomic_load_n(word, __ATOMIC_SEQ_CST), requests_.waiting(thread)));
    }
    accesses(thread, access, at, sizeof(T), true, return_address);
    acquires_past_ = false;
    return value;
  }

  /// A volatile load or store.
  void accesses_volatile(int thread, Access access, std::uintptr_t address, const void* return_address);

  /// An atomic operation reads what is there before it changes it.
  void reads_before_update(int thread, std::uintptr_t address, std::size_t bytes, const void* return_address);

  /// An atomic operation or a volatile load has happened there: the thread knows what others have published.
  void acquires_word(int thread, std::uintptr_t address);
  /// A load, or an operation that leaves the word as it is, has happened there. In shared memory it may have
  /// come before a store of the same value, and then the thread knows only what was published by then. (In
  /// device memory loads_word() sees to that.)
  void acquires_word_read(int thread, std::uintptr_t address, std::size_t bytes);
  /// Whether the atomic operation that comes next leaves the word as it is.
  void leaves_word(bool leaves) { leaves_word_ = leaves; }

  void touches(int thread, const Touched& touched) override;
  void touches_together(int warp, const Touched& touched,
                        std::span<const unsigned char* const, 32> of_lane) override;
  void flies(int thread, const Touched& touched) override;
  void lands(int thread, const Touched& touched) override;
  void converges(int warp, uint32_t lanes) override {
    if (!suspicions_.none())
      for (uint32_t left = lanes; left; left &= left - 1)
        suspicions_.goes_on(warp * 32 + __builtin_ctz(left));
    together_.groups_count = 0;
    requests_.converge(warp, lanes);
  }

  void joins(int warp, uint32_t lanes) override { clocks_.join(warp * 32, lanes); }
  void releases(int thread, const void* object) override {
    suspicions_.goes_on(thread);
    requests_.check(thread);
    clocks_.release(thread, object);
  }
  void completes(const void* object) override {
    // A block's barriers lie with the simulator, mbarriers in the block's shared memory.
    if (!concerns(std::uintptr_t(object))) ++barriers_;
    clocks_.complete(object);
  }
  void acquires(int thread, const void* object) override {
    requests_.check(thread);
    clocks_.acquire(thread, object);
  }

  void waits_for_launch_before(int thread) override {
    launch_waits_.emplace_back(thread, clocks_.now(thread));
    grid_->has_waited = true;
  }
  void lets_dependents_launch(int thread) override {
    if (std::exchange(has_let_go_, true)) return;
    if (!knows_launch_before_over(thread)) grid_->lets_go_early = true;
  }
  void fences(int thread) override {
    suspicions_.goes_on(thread);
    requests_.check(thread);
    order_.fence(thread);
  }
  void fences_proxy(int thread, Proxied memory) override {
    requests_.check(thread);
    clocks_.fence_proxy(thread, memory);
  }
  uint32_t begins_async(const void* object) override { return clocks_.next_ticket(clocks_.agent(object)); }
  void touches_async(int thread, const void* object, uint32_t ticket, const Touched& touched) override;
  void reads_for_warp(int warp, const Touched& touched) override;
  void knows_async_done(int thread, const void* object, uint32_t ticket) override {
    requests_.check(thread);
    clocks_.learn(thread, clocks_.agent(object), ticket);
  }
  void arrives_async(const void* object, uint32_t ticket) override {
    clocks_.release_agent(clocks_.agent(object), ticket, object);
  }
  void streams(int thread, const void* object, uint32_t ticket, const Touched& touched) override;
  void takes_registers(int thread, const void* registers, std::size_t bytes, const char* instruction,
                       Location where) override;
  void gives_back_registers(int thread, const void* registers) override;

 private:
  /// Registers in flight.
  struct Accumulator {
    std::uintptr_t begin;
    std::size_t bytes;
    Site site;
  };
  void check_host(Access access, std::uintptr_t address, std::size_t bytes, const void* return_address) const;
  void check_accumulators(int thread, Access access, std::uintptr_t address,
                          const void* return_address) const;
  void check_owner(int thread, Access access, std::uintptr_t address, const void* return_address) const;

  /// Where an address lies.
  enum class Space { elsewhere, global, variable, shared, outside };
  struct Place {
    Space space;
    std::size_t offset = 0;  ///< of shared memory, in what the races are kept of
  };

  Place place_of(std::uintptr_t address, std::size_t bytes);
  void note(int thread, Access access, std::uintptr_t address, std::size_t bytes, Site site, Place place);
  void touches_sectors(const Sectors& sectors, Access access) override;
  void checks(int thread, const Kind& kind, uint64_t address) override;
  void checks(int warp, const Kind& kind, uint64_t first, std::span<const SameAddress> parts) override;
  void check_shared(int thread, Access access, std::uintptr_t address, std::size_t offset, std::size_t bytes,
                    Site site);
  void check_global(DeviceMemory& memory, int thread, Access access, std::uintptr_t address,
                    std::size_t bytes, Site site);
  std::size_t offset_of_shared(std::uintptr_t address) const {
    return address - dynamic_begin_ < kMaxSharedBytes ? address - dynamic_begin_
                                                      : kMaxSharedBytes + (address - static_begin_);
  }
  bool knows_launch_before_over(int thread) const {
    return std::any_of(launch_waits_.begin(), launch_waits_.end(), [&](const auto& wait) {
      return wait.first == thread || clocks_.known(thread, wait.first) >= wait.second;
    });
  }
  void check_earlier_launches(const DeviceMemory::Who& who, Access access, std::uintptr_t address,
                              std::size_t bytes, Site site);
  /// Has a fault written down where it arose, for its first time.
  void write_down(int thread, Site site, Faults fault);
  void report(const Race& race);
  void report(const BlockConflict& conflict);
  void report_unwritten();
  void report_suspects() const;
  void check_pointer(std::uintptr_t address, Site site, Place place);
  void check_written(int thread, std::uintptr_t address, std::size_t bytes, Site site, Place place);
  std::string describe_shared(std::size_t offset) const;
  template <typename Found>
  void judge(const Found& found, int thread, std::uintptr_t address, std::size_t bytes);

  std::unique_ptr<SharedRaces> races_;
  Clocks clocks_;
  BlockOrder order_{clocks_};
  Requests requests_{*this};
  Suspicions suspicions_;
  VolatileWords volatile_words_{clocks_};
  std::vector<std::vector<Accumulator>> in_flight_;     ///< of each thread
  int accumulators_ = 0;                                ///< in all of them
  std::vector<std::pair<int, uint32_t>> launch_waits_;  ///< threads that have waited, and their clocks then
  bool has_let_go_ = false;                             ///< whether the next launch may begin for this block
  /// A load of shared memory that nobody had written.
  struct Unwritten {
    int thread;
    std::size_t bytes;
  };
  std::map<std::pair<Site, std::size_t>, Unwritten> unwritten_;  ///< by its place in the source and in memory
  GridTrace* grid_ = nullptr;
  const DeviceMemory* known_reads_ = nullptr;  ///< the grid's, unless an earlier launch may still write there
  const Scheduler* scheduler_ = nullptr;
  Block block_{};
  std::vector<std::span<unsigned char>> static_shared_;  ///< the block's, ascending
  /// Dynamic shared memory, or one of those arrays.
  struct SharedArray {
    std::uintptr_t begin;
    std::size_t bytes;
    std::size_t offset;  ///< in what the races are kept of
  };
  SharedArray recent_{}, other_{};  ///< the two that were accessed last
  /// Lanes that converge, as far as their loads wait for checks.
  struct Together {
    const uint32_t* known = nullptr;  ///< what all of them know of others; null if they do not know the same
    int groups_count = 0;             ///< 0: nobody has asked yet
    struct {
      uint32_t clock, lanes;
    } groups[32];
  };
  Together together_;
  void look_up_together(int warp, uint32_t lanes);
  uint64_t barriers_ = 0;        ///< that the block has passed
  bool has_faults_ = false;      ///< whether the block has
  bool leaves_word_ = false;     ///< whether the atomic operation that is made does
  bool acquires_past_ = false;   ///< whether the access that is made has acquired before
  std::set<Site> written_down_;  ///< where it has, in the log of its events
  std::uintptr_t variables_begin_ = 0, variables_bytes_ = 0;
  std::uintptr_t own_begin_ = 0, own_bytes_ = 0;        ///< the OS thread's variables
  std::uintptr_t kernel_begin_ = 0, kernel_bytes_ = 0;  ///< the kernel's code
  std::uintptr_t stacks_begin_ = 0, stacks_bytes_ = 0;
  std::uintptr_t global_begin_ = 0, dynamic_begin_ = 0, static_begin_ = 0, static_end_ = 0;
};

/// The tracer of the block that the calling OS thread runs; null if there is none.
extern thread_local constinit Tracer* current_tracer;

/// The trace of the grid that runs.
GridTrace& current_grid();

/// The line of a site, for a report of the block that the calling OS thread runs.
SourceLine line_of(Site site);

}  // namespace flashbook::sim
