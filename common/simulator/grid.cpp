/// \file
/// Checks launches, and distributes the blocks of a grid across OS threads.
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/simulator/block/fiber.h"
#include "common/simulator/block/static_shared.h"
#include "common/simulator/block/turns.h"
#include "common/simulator/block/watchdog.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/launch.h"
#include "common/simulator/launch_bounds.h"
#include "common/simulator/memory.h"
#include "common/simulator/source_lines.h"
#include "common/simulator/trap.h"

namespace flashbook::sim {
namespace {

constexpr unsigned kMaxGridX = (1u << 31) - 1;
constexpr unsigned kMaxGridYZ = (1u << 16) - 1;
constexpr unsigned kMaxBlockZ = 64;
constexpr int kMaxOsThreads = 1024;
constexpr int kMaxTimeout = 24 * 60 * 60;

std::string text_of(dim3 size) {
  return "(" + std::to_string(size.x) + "," + std::to_string(size.y) + "," + std::to_string(size.z) + ")";
}

/// Describes the kernel at this address as precisely as possible: "attend<64> at attention.cuh:58".
std::string describe_kernel(const void* kernel) {
  const std::uintptr_t code = offset_in_program(kernel);
  const auto lines = source_lines_of_code({&code, 1});
  const auto line = lines.find(code);
  const std::string name = function_name(kernel);
  return (name.empty() ? "the kernel" : name) +
         (line == lines.end() || line->second.empty() ? "" : " at " + line->second.front());
}

/// Throws Error if a GPU of compute capability 9.0 would refuse the launch (CUDA programming guide, "Compute
/// Capabilities").
void check_launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const void* kernel) {
  for (dim3 size : {grid, block})
    if (size.x == 0 || size.y == 0 || size.z == 0)
      throw Error("grid " + text_of(grid) + " of blocks " + text_of(block) +
                  ": every dimension must be at least 1");
  if (uint64_t(block.x) * block.y > kMaxThreads || uint64_t(block.x) * block.y * block.z > kMaxThreads)
    throw Error("a block of " + text_of(block) + " threads: a block has at most 1024");
  const LaunchBounds bounds = launch_bounds_of(kernel);
  if (const unsigned threads = block.x * block.y * block.z;
      bounds.threads && threads > unsigned(bounds.threads))
    throw Error("a block of " + std::to_string(threads) + " threads: the __launch_bounds__ of " +
                describe_kernel(kernel) + " allow " + std::to_string(bounds.threads) +
                ", so a GPU would refuse the launch. Launch fewer threads, or raise the bound");
  if (block.z > kMaxBlockZ) throw Error("a block of " + text_of(block) + " threads: z is at most 64");
  if (grid.x > kMaxGridX) throw Error("a grid of " + text_of(grid) + " blocks: x is at most 2147483647");
  if (grid.y > kMaxGridYZ || grid.z > kMaxGridYZ)
    throw Error("a grid of " + text_of(grid) + " blocks: y and z are at most 65535");
  if (dynamic_shared_bytes > kMaxSharedBytes)
    throw Error(std::to_string(dynamic_shared_bytes) +
                " bytes of dynamic shared memory: a block has at most " + std::to_string(kMaxSharedBytes) +
                " (227 KB)");
  const std::size_t arrays = static_shared_bytes_of(kernel);
  constexpr std::size_t kMaxArrays = 48 * 1024;
  if (arrays > kMaxArrays)
    throw Error(std::to_string(arrays) + " bytes of __shared__ arrays: a kernel has at most " +
                std::to_string(kMaxArrays) + " (48 KB) of them. dynamic_shared<T>() provides up to 227 KB");
  if (dynamic_shared_bytes + arrays > kMaxSharedBytes)
    throw Error(std::to_string(dynamic_shared_bytes) + " bytes of dynamic shared memory and " +
                std::to_string(arrays) + " of __shared__ arrays: a block has at most " +
                std::to_string(kMaxSharedBytes) + " (227 KB) together");
}

/// Returns the integer in an environment variable, or `otherwise` if it is not set.
uint64_t from_environment(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char* text = std::getenv(name);
  if (!text) return otherwise;
  const char* end = text + std::strlen(text);
  uint64_t value = 0;
  const auto [parsed, error] = std::from_chars(text, end, value);
  if (error != std::errc() || parsed != end || value < least || value > most)
    throw SettingError(std::string(name) + "=" + text + ": give a whole number from " +
                       std::to_string(least) + " to " + std::to_string(most));
  return value;
}

Async async_from_environment() {
  const char* name = "FLASHBOOK_SIM_ASYNC";
  const char* text = std::getenv(name);
  const std::string_view value = text ? text : "lazy";
  if (value == "eager") return Async::eager;
  if (value == "lazy") return Async::lazy;
  if (value == "random") return Async::random;
  throw SettingError(std::string(name) + "=" + text + ": use eager, lazy or random");
}

/// The error of the block with the lowest number. Blocks are handed out in order, so this error does not
/// depend on the number of OS threads. Errors of blocks that waited too long for others rank below all other
/// errors, since the awaited block may have been stopped.
class FirstError {
 public:
  void add(uint64_t block, std::string text, bool waits_in_vain) {
    const std::lock_guard lock(mutex_);
    if (text_.empty() || std::pair(waits_in_vain, block) < std::pair(waits_in_vain_, block_)) {
      block_ = block;
      waits_in_vain_ = waits_in_vain;
      text_ = std::move(text);
    }
    happened_ = true;
  }
  bool happened() const { return happened_; }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> happened_{false};
  uint64_t block_ = 0;
  bool waits_in_vain_ = false;
  std::string text_;
};

/// Workers outlive a grid, since their memory is expensive to set up; one grid uses them at a time.
std::vector<std::unique_ptr<Worker>> workers;

/// Totals over all grids run so far, except for the number of turns, which the workers count.
Counts counts_of_grids;

/// Hands out the blocks of a grid in order to OS threads: to as many as the options allow, and to more when a
/// block does nothing but poll memory. Such a block may be waiting for one that has not begun, and a GPU with
/// enough room runs both concurrently. On a single OS thread such blocks take turns, switching whenever one
/// waits for others.
class Blocks final : public OtherBlocks {
 public:
  /// `enter` prepares a worker for the grid.
  Blocks(dim3 grid, uint64_t seed, std::function<void(Worker&, OtherBlocks&)> enter)
      : count_(uint64_t(grid.x) * grid.y * grid.z), seed_(seed), enter_(std::move(enter)) {
    const int at_one_time = std::max(1, options().os_threads);
    if (count_ == 1 || !kHasOsThreads || (seed == 0 && at_one_time > 1)) return;
    turns_.emplace(at_one_time, seed);
    turns_->enter();
  }

  /// Runs all blocks, or all blocks before the first one that fails.
  void run() {
    provide_workers(1);
    if (!kHasOsThreads) return run_in_turn();
    const auto wanted = std::min<uint64_t>(count_, uint64_t(std::max(1, options().os_threads)));
    while (uint64_t(begun_) < wanted && begin_another()) {
    }
    run_blocks(0);
    for (std::unique_lock lock(mutex_); !threads_.empty();) {
      std::thread thread = std::move(threads_.back());
      threads_.pop_back();
      lock.unlock();
      thread.join();
      lock.lock();
    }
  }

  const FirstError& error() const { return error_; }

  bool go_on(int rounds) override { return !(unit_->gives_up = !may_go_on(rounds)); }

  bool may_go_on(int rounds) {
    constexpr int kMaxRoundsAlone = 1 << 10;  // no kernel polls this long on purpose
    constexpr int kFewRounds = 32;            // too few to begin another block, or to give up
    const auto now = std::chrono::steady_clock::now();
    if (!unit_->waits) {
      unit_->waits = true;
      unit_->all_wait_since = now;
      unit_->all_wait_from = rounds;
      ++waiting_;
    }
    if (error_.happened()) return false;
    const bool begins = rounds > (working_ == 1 ? 1 : kFewRounds) && begin_another();
    // The last of the other blocks may have ended since this block last polled, after performing the
    // operation that this block waits for.
    if (working_ > 1 || rounds < unit_->rounds_beside_others) unit_->rounds_beside_others = rounds;
    if (begins || working_ == 1) {
      if (turns_) turns_->hand_over(unit_->number);
      return begins || rounds - unit_->rounds_beside_others <= kMaxRoundsAlone;
    }
    if (kHasOsThreads && (!turns_ || waiting_ >= working_))
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(rounds, 500)));
    if (turns_) turns_->hand_over(unit_->number);
    // Another block may have stopped waiting while this block slept.
    if (const uint64_t ended = waits_ended_; waiting_ < working_ || ended != unit_->known_to_have_ended) {
      unit_->known_to_have_ended = ended;
      unit_->all_wait_since = now;
      unit_->all_wait_from = rounds;
    }
    // On a busy machine, the other blocks may not have run in all that time.
    return rounds - unit_->all_wait_from <= kFewRounds ||
           now - unit_->all_wait_since < std::chrono::milliseconds(1000 * std::max(1, options().timeout) / 3);
  }
  void stop_waiting() override {
    if (!unit_->waits) return;
    unit_->waits = false;
    ++waits_ended_;
    --waiting_;
  }
  /// The first blocks meet before their second additions, except for blocks that are waiting for others: by
  /// then every block has handled the result of its first addition.
  bool must_wait_at_addition() override {
    if (unit_->added == Added::enough) return false;
    if (unit_->added == Added::nothing) {
      unit_->added = Added::once;
      return false;
    }
    if (std::exchange(unit_->added, Added::waits) == Added::once) {
      ++came_;
      ++wait_there_;
      while (uint64_t(working_) < blocks_that_meet() && begin_another()) {
      }
    }
    if (came_ >= blocks_that_meet() || wait_there_ + waiting_ >= working_ || error_.happened())
      has_met_ = true;
    if (!has_met_) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      return true;
    }
    --wait_there_;
    unit_->added = Added::enough;
    return false;
  }
  bool hands_over() const override { return turns_ && seed_ != 0; }
  bool may_hand_over() override {
    if (--unit_->operations_left > 0) return false;
    unit_->operations_left = 1 + unit_->random.below(1 << 2 * unit_->random.below(5));
    hand_over();
    return true;
  }
  uint64_t at_once() const override {
    return std::max<uint64_t>(kMaxForOthers, uint64_t(options().os_threads));
  }

 private:
  /// Returns as many blocks as the simulator's multiprocessors run concurrently (device.h).
  uint64_t blocks_that_meet() const { return std::min<uint64_t>(count_, 4); }

  static constexpr int kManyBlocks = 64;  ///< later blocks rarely let others run before they begin
  /// The maximum number of blocks that run concurrently because one block waits for others. (A web page has
  /// too little memory for many.)
  static constexpr int kMaxForOthers = kHasOsThreads ? 64 : 4;

  /// Gives another of the concurrent blocks a turn.
  void hand_over() {
    if (uint64_t(working_) < blocks_that_meet()) begin_another();
    turns_->hand_over(unit_->number);
  }

  /// Requires that mutex_ is held, or that no other OS thread is running.
  void provide_workers(int count) {
    while (workers.size() < std::size_t(count)) workers.push_back(std::make_unique<Worker>());
  }

  void run_blocks(int number_of_unit) {
    const Watchdog watchdog(options().timeout);
    const CrashStack crash_stack;
    if (turns_) turns_->wait(number_of_unit);
    Unit unit{.number = number_of_unit};
    unit_ = &unit;
    Worker& worker = [&]() -> Worker& {
      const std::lock_guard lock(mutex_);
      return *workers[std::size_t(number_of_unit)];
    }();
    enter_(worker, *this);
    for (uint64_t number; !error_.happened() && (number = next_++) < count_; stop_waiting()) {
      // On one OS thread a grid must behave the same on every run; in random order blocks meet anyway.
      const bool meets = number < blocks_that_meet() && options().os_threads > 1 && !turns_;
      unit_->added = meets ? Added::nothing : Added::enough;
      if (hands_over()) {
        unit_->random = Random(~seed_, number);
        unit_->operations_left = 1 + unit_->random.below(4);
        if (unit_->random.below(number < kManyBlocks ? 2 : kManyBlocks) == 0) hand_over();
      }
      unit_->gives_up = false;
      if (auto problem = worker.run_block(number, seed_)) error_.add(number, *problem, unit_->gives_up);
      if (unit_->added != Added::enough) ++came_;
    }
    --working_;
    if (turns_) turns_->leave();
  }

  /// Runs all units on the calling OS thread, each until its block waits for other blocks.
  void run_in_turn() {
    std::deque<Unit> units;
    SharedMemory* in_place = nullptr;  // the unit whose `__shared__` arrays are in place
    for (int number = 0; working_ > 0; number = number + 1 < begun_ ? number + 1 : 0) {
      Worker& worker = *workers[std::size_t(number)];
      if (number == int(units.size())) {
        enter_(worker, *this);
        units.push_back({.number = number});
      }
      unit_ = &units[std::size_t(number)];
      if (unit_->is_over) continue;
      if (in_place != &worker.memory) {
        if (in_place) in_place->put_aside();
        if (unit_->has_block) worker.memory.bring_back();
        in_place = &worker.memory;
      }
      while (unit_->has_block || begin_next_block(worker)) {
        if (worker.go_on()) break;
        if (auto problem = worker.end_block()) error_.add(unit_->block, *problem, unit_->gives_up);
        unit_->has_block = false;
        stop_waiting();
      }
      if (unit_->has_block) continue;
      unit_->is_over = true;
      --working_;
    }
  }
  bool begin_next_block(Worker& worker) {
    if (error_.happened() || next_ >= count_) return false;
    unit_->block = next_++;
    unit_->gives_up = false;
    worker.begin_block(unit_->block, seed_);
    return unit_->has_block = true;
  }

  /// Starts another unit, unless it would have no block to run or the system refuses another OS thread.
  bool begin_another() {
    if (next_ >= count_) return false;
    const std::lock_guard lock(mutex_);
    const int number = begun_;
    if (uint64_t(number) >= std::min(count_, at_once())) return false;
    provide_workers(number + 1);
    ++working_;  // counted before the unit runs, since a unit that is alone behaves differently
    if (!kHasOsThreads) {
      ++begun_;
      return true;
    }
    if (turns_) turns_->enter();
    try {
      threads_.emplace_back([this, number] { run_blocks(number); });
    } catch (const std::system_error&) {
      --working_;
      if (turns_) turns_->withdraw();
      return false;
    }
    ++begun_;
    return true;
  }

  const uint64_t count_, seed_;
  const std::function<void(Worker&, OtherBlocks&)> enter_;
  std::atomic<uint64_t> next_{0};
  std::atomic<int> working_{1}, waiting_{0};  ///< number of units, including that of the calling OS thread
  std::atomic<uint64_t> waits_ended_{0};      ///< number of times that a unit has stopped waiting
  std::atomic<uint64_t> came_{0};             ///< number of blocks that have arrived at the meeting or ended
  std::atomic<int> wait_there_{0};            ///< number of OS threads whose blocks wait there for the others
  std::atomic<bool> has_met_{false};
  FirstError error_;
  std::optional<Turns> turns_;  ///< used in random order, and where only one block runs at a time
  std::mutex mutex_;            ///< protects the members below
  std::vector<std::thread> threads_;
  int begun_ = 1;
  /// The number of additions to integers in device memory that the unit's block has made; `enough` if the
  /// block need not meet others.
  enum class Added { nothing, once, waits, enough };
  /// Runs one block at a time, either on its own OS thread or on one that it shares with other units.
  struct Unit {
    int number = 0;      ///< number of the unit, from 0
    bool waits = false;  ///< whether the unit is counted in waiting_
    Added added = Added::enough;
    std::chrono::steady_clock::time_point all_wait_since{};
    int all_wait_from = 0;             ///< number of rounds it had waited at that time
    uint64_t known_to_have_ended = 0;  ///< value of waits_ended_
    int rounds_beside_others = 0;      ///< number of rounds it had waited when other blocks last ran
    bool gives_up = false;             ///< whether its block has waited too long
    Random random{0};                  ///< decides when its block lets others run
    int operations_left = 0;           ///< number of operations until the next decision
    // Used by units that share an OS thread:
    uint64_t block = 0;
    bool has_block = false;  ///< a block that has not ended
    bool is_over = false;    ///< set if no block is left for this unit
  };
  static thread_local constinit Unit* unit_;  ///< the calling OS thread's unit
};

thread_local constinit Blocks::Unit* Blocks::unit_ = nullptr;

}  // namespace

Options& options() {
  static Options options{
      int(from_environment("FLASHBOOK_SIM_THREADS", std::max(2u, std::thread::hardware_concurrency()), 1,
                           kMaxOsThreads)),
      from_environment("FLASHBOOK_SIM_SEED", 0, 0, ~uint64_t(0)), async_from_environment(),
      from_environment("FLASHBOOK_SIM_EXACT", 0, 0, 1) == 1,
      int(from_environment("FLASHBOOK_SIM_TIMEOUT", 3, 0, kMaxTimeout))};
  return options;
}

void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              const std::function<void()>& thread_body, const void* kernel, Watcher* watcher,
              bool dependent) {
  if (current_worker)
    throw Error("a kernel launches a kernel: the simulator supports launches from the host only");
  check_launch(grid, block, dynamic_shared_bytes, kernel);

  static std::mutex one_grid;
  const std::lock_guard lock(one_grid);

  if (!watcher) note_all_written();  // this launch's writes are not recorded
  if (watcher) watcher->grid_begins({grid, block, dynamic_shared_bytes, kernel, dependent});
  if (EventFile* events = EventFile::asked())
    events->grid_begins({grid, block, dynamic_shared_bytes, kernel, dependent},
                        thread_body.target_type().name());
  const CrashGuard guard;
  Blocks blocks(grid, options().seed, [&](Worker& worker, OtherBlocks& others) {
    worker.enter_grid(grid, block, dynamic_shared_bytes, thread_body, kernel, watcher, others);
  });
  blocks.run();
  const uint64_t blocks_run = uint64_t(grid.x) * grid.y * grid.z;
  ++counts_of_grids.launches;
  counts_of_grids.blocks += blocks_run;
  counts_of_grids.threads += blocks_run * block.x * block.y * block.z;
  const std::string seen = watcher ? watcher->grid_ends() : "";
  std::string error = blocks.error().text() + (blocks.error().happened() && !seen.empty() ? "\n" : "") + seen;
  if (error.empty()) error = describe_written_outside();
  if (EventFile* events = EventFile::asked()) events->grid_ends(error);
  if (!error.empty()) throw Error(error);
}

Counts counts() {
  Counts counts = counts_of_grids;
  for (const auto& worker : workers) counts.turns += worker->scheduler.turns();
  return counts;
}

void require_device_pointer(const void* kernel, int number, const volatile void* argument) {
  if (!argument) return;
  if (is_global(const_cast<const void*>(argument))) {
    const int device = device_of(const_cast<const void*>(argument));
    if (device < 0 || device == current_device()) return;
    throw Error("argument " + std::to_string(number) + " of " + describe_kernel(kernel) +
                " points to memory of device " + std::to_string(device) + ", and the kernel runs on device " +
                std::to_string(current_device()) + ": copy the data there (device::copy_async)");
  }
  throw Error("argument " + std::to_string(number) + " of " + describe_kernel(kernel) +
              " points to host memory: an illegal address on a GPU. Copy the data to a device::Buffer "
              "(Place::device) and pass that to the kernel");
}

unsigned char* dynamic_shared_memory() {
  if (!current_worker)
    throw Error("dynamic shared memory was requested outside a kernel: launch the kernel instead");
  return current_worker->memory.dynamic().data();
}

}  // namespace flashbook::sim
