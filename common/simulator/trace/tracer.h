/// \file
/// The tracing observer. Internal to the simulator.
#pragma once
#include <algorithm>
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

/// The state that all tracers of a grid share.
struct GridTrace {
  /// `before` is the previous launch if it may still be running, otherwise null.
  GridTrace(const Launch& launch, const std::shared_ptr<GridTrace>& before);

  /// A launch that may still be running when this one begins.
  struct Earlier {
    std::shared_ptr<const GridTrace> launch;
    int distance;           ///< 1 for the previous launch
    bool ends_before_wait;  ///< whether it has finished whenever the previous launch has
  };

  Launch launch;
  DeviceMemory memory;     ///< allocations
  DeviceMemory variables;  ///< the program's variables: kernels can name those that are `__device__`
  std::vector<Earlier> earlier;
  std::atomic<bool> has_waited{false};  ///< whether any thread has waited for the previous launch
  /// Whether a block ends, or lets the next launch begin, before it knows that the previous launch has
  /// finished.
  std::atomic<bool> lets_go_early{false};
  Published published;
  std::mutex mutex;  ///< protects the members below
  std::unordered_map<uint64_t, Counts> counts;
  uint64_t busy_blocks = 0;  ///< number of blocks that made any request
  uint64_t barriers = 0;
  Faults faults;
};

/// No memory is ever mapped below this address: an index into a null pointer ends up here.
constexpr std::uintptr_t kLowestAddress = 0x10000;

/// Traces the blocks of one OS thread.
class Tracer final : public Observer, RequestSink {
 public:
  void block_begins(const Block& block) override;
  void block_ends() override;

  /// Returns whether an address belongs to a local variable.
  bool is_local(std::uintptr_t address) const { return address - stacks_begin_ < stacks_bytes_; }
  /// Returns whether an address may be in global or shared memory, or is invalid. All other addresses, mostly
  /// of local variables, can be ignored.
  bool concerns(std::uintptr_t address) const {
    return address - global_begin_ < kGlobalBytes || address - dynamic_begin_ < kMaxSharedBytes ||
           address - static_begin_ < static_end_ - static_begin_ ||
           address - variables_begin_ < variables_bytes_ || address < kLowestAddress;
  }
  /// Returns whether an address is in device memory: in an allocation or in a variable.
  bool is_of_device(std::uintptr_t address) const {
    return address - global_begin_ < kGlobalBytes || address - variables_begin_ < variables_bytes_;
  }
  /// Checks an access to a local variable, which may be an accumulator or belong to another thread.
  [[gnu::always_inline]] void accesses_local(int thread, Access access, std::uintptr_t address,
                                             const void* return_address) const {
    // The thread's own locals begin at its stack pointer; a neighbour's are half a stack away. (Each check is
    // a tail call, so that no registers are saved for it.)
    if (address - stack_pointer() >= kUsableStackBytes / 2) [[unlikely]]
      return check_owner(thread, access, address, return_address);
    if (accumulators_ > 0) check_accumulators(thread, access, address, return_address);
  }
  /// Checks an access to any other address: a variable of the OS thread such as threadIdx, or memory that a
  /// GPU does not have. Only accesses by the kernel's own code count, since the simulator may call functions
  /// that the linker took from a traced file.
  void accesses_other(Access access, std::uintptr_t address, std::size_t bytes, const void* return_address) {
    if (address - own_begin_ >= own_bytes_ && std::uintptr_t(return_address) - kernel_begin_ < kernel_bytes_)
      check_host(access, address, bytes, return_address);
  }
  int thread() const { return scheduler_->current().number; }
  /// Notes a plain, aligned load by the kernel if it is certainly correct or can be checked later, as most
  /// are. (It calls no function, so few registers are saved, and is inlined where `bytes` is constant.)
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
  /// Returns whether an address is in one of the two most recently accessed shared arrays, as most are.
  bool is_in_recent_array(std::uintptr_t address) {
    if (address - recent_.begin < recent_.bytes) return true;
    if (address - other_.begin >= other_.bytes) return false;
    std::swap(recent_, other_);
    return true;
  }
  /// Checks a plain load or store by the kernel in such an array.
  void accesses_recent_array(int thread, Access access, std::uintptr_t address, std::size_t bytes,
                             bool aligned, const void* return_address);
  /// Checks a load or store by the kernel. Atomic and volatile accesses first publish whatever the thread has
  /// fenced.
  void accesses(int thread, Access access, std::uintptr_t address, std::size_t bytes, bool aligned,
                const void* return_address);

  /// Checks an atomic operation on a word. In device memory, reading the word's value and publishing must be
  /// one step.
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
  /// Returns the result of an atomic load of a word in device memory, or of an operation that leaves the word
  /// unchanged: the earliest possible value. The thread acquires the knowledge published by then.
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

  /// Checks a volatile load or store.
  void accesses_volatile(int thread, Access access, std::uintptr_t address, const void* return_address);

  /// Checks the read that is part of an atomic operation, before the operation changes the word.
  void reads_before_update(int thread, std::uintptr_t address, std::size_t bytes, const void* return_address);

  /// Notes that the thread has performed an atomic operation or a volatile load and sees what others have
  /// published at that word.
  void acquires_word(int thread, std::uintptr_t address);
  /// Notes that the thread has performed a volatile load, or an atomic operation that does not change the
  /// word. In shared memory, the access may have preceded a store of the same value; the thread then sees
  /// only what was published before that store. (loads_word() handles device memory.)
  void acquires_word_read(int thread, std::uintptr_t address, std::size_t bytes);
  /// Notes whether the next atomic operation leaves the word unchanged.
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
    // A block's barriers belong to the simulator; its mbarriers are in its shared memory.
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
  /// Accumulator registers that are in flight.
  struct Accumulator {
    std::uintptr_t begin;
    std::size_t bytes;
    Site site;
  };
  void check_host(Access access, std::uintptr_t address, std::size_t bytes, const void* return_address) const;
  void check_accumulators(int thread, Access access, std::uintptr_t address,
                          const void* return_address) const;
  void check_owner(int thread, Access access, std::uintptr_t address, const void* return_address) const;

  /// The kind of memory that contains an address.
  enum class Space { other, global, variable, shared, outside };
  struct Place {
    Space space;
    std::size_t offset = 0;  ///< offset in shared memory, in the race checker's numbering
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
  /// Logs a fault at the place where it arose, the first time that it occurs.
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
  std::vector<std::vector<Accumulator>> in_flight_;     ///< accumulators in flight of each thread
  int accumulators_ = 0;                                ///< total number of these over all threads
  std::vector<std::pair<int, uint32_t>> launch_waits_;  ///< threads that waited, with their clocks
  bool has_let_go_ = false;                             ///< whether this block lets the next launch begin
  /// A load of unwritten shared memory.
  struct Unwritten {
    int thread;
    std::size_t bytes;
  };
  std::map<std::pair<Site, std::size_t>, Unwritten> unwritten_;  ///< keyed by source location and memory
  GridTrace* grid_ = nullptr;
  const DeviceMemory* known_reads_ = nullptr;  ///< null if an earlier launch may still write there
  const Scheduler* scheduler_ = nullptr;
  Block block_{};
  std::vector<std::span<unsigned char>> static_shared_;  ///< the block's arrays, ascending
  /// Dynamic shared memory, or one of those arrays.
  struct SharedArray {
    std::uintptr_t begin;
    std::size_t bytes;
    std::size_t offset;  ///< offset in shared memory, in the race checker's numbering
  };
  SharedArray recent_{}, other_{};  ///< the two accessed most recently
  /// Converging lanes whose loads still have to be checked.
  struct Together {
    const uint32_t* known = nullptr;  ///< the lanes' knowledge of others; null if it differs between them
    int groups_count = 0;             ///< 0 if not computed yet
    struct {
      uint32_t clock, lanes;
    } groups[32];
  };
  Together together_;
  void look_up_together(int warp, uint32_t lanes);
  uint64_t barriers_ = 0;        ///< number of barriers that the block has passed
  bool has_faults_ = false;      ///< whether the block has faults
  bool leaves_word_ = false;     ///< whether the current atomic operation leaves its word unchanged
  bool acquires_past_ = false;   ///< whether the current access has already acquired
  std::set<Site> written_down_;  ///< sites whose faults are already in the event log
  std::uintptr_t variables_begin_ = 0, variables_bytes_ = 0;
  std::uintptr_t own_begin_ = 0, own_bytes_ = 0;        ///< the OS thread's variables
  std::uintptr_t kernel_begin_ = 0, kernel_bytes_ = 0;  ///< the kernel's code
  std::uintptr_t stacks_begin_ = 0, stacks_bytes_ = 0;
  std::uintptr_t global_begin_ = 0, dynamic_begin_ = 0, static_begin_ = 0, static_end_ = 0;
};

/// The tracer of the block that the calling OS thread runs; null if there is none.
extern thread_local constinit Tracer* current_tracer;

GridTrace& current_grid();

/// Returns the line of a site, for a report of the block that the calling OS thread runs.
SourceLine line_of(Site site);

}  // namespace flashbook::sim
