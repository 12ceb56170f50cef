#include "common/simulator/block/worker.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <utility>

#include "common/simulator/describe.h"
#include "common/simulator/language.h"
#include "common/simulator/launch.h"
#include "common/simulator/launch_bounds.h"

#ifdef __EMSCRIPTEN__
extern "C" void flashbook_block_begins(double number);  // shows progress on the page (docs/web)
#endif

namespace flashbook::sim {
namespace {

[[noreturn]] void outside_a_kernel(const char* what, Location where) {
  throw Error(describe_call(what, where) + " was called outside a kernel: launch the kernel instead");
}

std::string describe_wait(const Thread& thread) {
  if (thread.exited) return "exited";
  if (!thread.awaited) return "has not started";
  return describe_call(thread.what, thread.where) + thread.awaited->describe_wait(thread);
}

}  // namespace

namespace {

/// Suspicions about blocks that ended without an error; only those of the first such block are kept.
std::mutex suspects_mutex;
std::optional<std::pair<uint64_t, std::string>> suspects_of_block;

void note_suspects(uint64_t block, std::string suspects) {
  const std::lock_guard lock(suspects_mutex);
  if (!suspects_of_block || block < suspects_of_block->first)
    suspects_of_block = {block, std::move(suspects)};
}

}  // namespace

std::string take_suspects() {
  const std::lock_guard lock(suspects_mutex);
  const auto suspects = std::exchange(suspects_of_block, std::nullopt);
  return suspects ? suspects->second : "";
}

thread_local constinit Worker* current_worker = nullptr;

Worker& running_worker(const char* what, Location where) {
  if (!current_worker) outside_a_kernel(what, where);
  return *current_worker;
}

void Worker::enter_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                        const std::function<void()>& body, const void* kernel, Watcher* watcher,
                        OtherBlocks& others) {
  grid_ = gridDim = grid;
  others_ = &others;
  hands_over_ = others.hands_over();
  blockDim = block;
  body_ = &body;
  if (watcher && watcher_ != watcher) {
    watcher_ = watcher;
    observer_ = watcher->make_observer();
  }
  memory.enter_grid(dynamic_shared_bytes);
  scheduler.enter_grid(block, watcher ? observer_.get() : nullptr);
  registers.enter_grid(int(block.x * block.y * block.z), launch_bounds_of(kernel));
}

std::optional<std::string> Worker::run_block(uint64_t number, uint64_t seed) {
  begin_block(number, seed);
  go_on();
  return end_block();
}

bool Worker::go_on() {
  current_worker = this;
  blockIdx = index_of(number_);
  return scheduler.run();
}

std::optional<std::string> Worker::end_block() {
  tensor_copies.end_block();
  std::string error = scheduler.error();
  if (error.empty() && scheduler.crashed())
    error = crash_report();
  else if (error.empty() && scheduler.given_up())
    error = endless_report();
  else if (error.empty())
    error = scheduler.alive() > 0 ? deadlock_report() : end_report();
  if (!error.empty())
    error += suspects();
  else if (mbarriers.is_suspicious() || barriers.is_suspicious())
    note_suspects(number_, suspects());
  if (observer()) observer()->block_ends();
  if (EventLog* log = scheduler.log(); log && !error.empty()) {
    const bool of_block = scheduler.error().empty() && !scheduler.crashed() && !scheduler.given_up();
    if (of_block) write_down_stuck();
    log->fault(of_block ? -1 : current_number(), 0, [error] { return error; });
  }
  current_worker = nullptr;
  return error.empty() ? std::nullopt : std::optional(std::move(error));
}

uint3 Worker::index_of(uint64_t number) const {
  const uint64_t row = number / grid_.x;
  return {unsigned(number % grid_.x), unsigned(row % grid_.y), unsigned(row / grid_.y)};
}

void Worker::begin_block(uint64_t number, uint64_t seed) {
#ifdef __EMSCRIPTEN__
  flashbook_block_begins(double(number));
#endif
  number_ = number;
  blockIdx = index_of(number);
  memory.begin_block();
  scheduler.begin_block(Random(seed, number), seed != 0);
  barriers.begin_block();
  warps.begin_block();
  warpgroups.begin_block({memory.dynamic().data(), uint32_t(memory.dynamic().size())});
  mbarriers.begin_block();
  copies.begin_block();
  tensor_copies.begin_block();
  registers.begin_block();
  counter_loop.begin_block();
  EventFile* const events = EventFile::asked();
  scheduler.set_log(events ? events->log_of(number, scheduler.alive()) : nullptr);
  current_worker = this;
  if (observer())
    observer()->block_begins({number, scheduler.alive(), memory.dynamic().data(), memory.dynamic().size(),
                              memory.static_arrays()});
}

/// Events of a thread's life cycle have no source location.
void Worker::run_thread() {
  if (EventLog* log = scheduler.log()) log->add(current_number(), {EventKind::starts, "starts", {}});
  (*body_)();
  tensor_copies.require_stores_read();
  warpgroups.leave();
  scheduler.exit_current();
  if (EventLog* log = scheduler.log()) log->add(current_number(), {EventKind::exits, "exits", {}});
  if (observer()) {
    observer()->releases(current_number(), barriers.whole_block());
    // When no lane is left, all lanes of the warp have finished.
    const int warp = scheduler.current().warp, others = int(scheduler.threads().size()) - warp * kWarpLanes;
    if (scheduler.alive_lanes(warp) == 0)
      observer()->converges(warp, others < kWarpLanes ? (1u << others) - 1 : kAllLanes);
  }
  // Other threads may have been waiting only for this one: from compute capability 7.0 on, barriers do not
  // wait for exited threads.
  barriers.leave();
  warps.leave();
}

void Worker::write_down(const char* what, Location where, int groups) {
  std::string detail;
  if (groups == 0) detail = "for all groups";
  if (groups > 0) detail = "for all groups but the latest " + std::to_string(groups);
  scheduler.log()->add(current_number(), {EventKind::does, what, where, "", detail});
}

/// Logs lanes that are stuck in a collective, which is otherwise logged once all lanes have arrived.
void Worker::write_down_stuck() {
  const auto is_stuck = [&](const Thread& thread) {
    return !thread.exited && (thread.awaited == &warps || thread.awaited == &warpgroups);
  };
  for (const Thread& first : scheduler.threads()) {
    uint32_t lanes = 0, before = 0;
    for (const Thread& other : scheduler.threads())
      if (other.warp == first.warp && is_stuck(other) && same_place(other.where, first.where)) {
        lanes |= 1u << other.lane;
        before |= uint32_t(other.lane < first.lane) << other.lane;
      }
    if (is_stuck(first) && !before)
      scheduler.log()->add_warps(
          first.warp, 1,
          {EventKind::waits, first.what, first.where, "", "stuck" + first.awaited->describe_wait(first)},
          false, lanes);
  }
}

std::string Worker::deadlock_report() const {
  std::ostringstream report;
  // No load is in flight here: it would have landed.
  if (scheduler.is_polling())
    report << "livelock in block " << triple(blockIdx)
           << ": threads are polling, and nothing changes any more";
  else
    report << "deadlock in block " << triple(blockIdx) << ": every thread waits or has exited";
  const uint64_t blocks = uint64_t(grid_.x) * grid_.y * grid_.z;
  if (const uint64_t at_once = others_->at_once(); scheduler.is_polling_memory() && at_once < blocks)
    report << ". If the block is waiting for another one, note that only " << at_once << " of " << blocks
           << " blocks run at a time, and the others begin when these have finished. FLASHBOOK_SIM_THREADS="
           << blocks << " runs all of them at the same time, as a GPU does if they fit";
  report << mbarriers.missing_bytes() << describe_all_waits();
  return report.str();
}

std::string Worker::describe_all_waits() const {
  std::ostringstream report;
  std::vector<std::vector<std::string>> said;  // lines of each warp
  for (int warp = 0; warp < scheduler.warps(); ++warp) said.push_back(describe_waits(warp));
  for (std::size_t first = 0; first < said.size();) {
    std::size_t last = first;  // last of the adjacent lanes in the same state
    while (last + 1 < said.size() && said[last + 1] == said[first]) ++last;
    for (const std::string& line : said[first])
      report << "\n  " << (last > first ? "warps " : "warp ") << first
             << (last > first ? "-" + std::to_string(last) : "") << ", " << line;
    first = last + 1;
  }
  return report.str();
}

/// Describes the state of a warp's lanes, in one line per group of lanes in the same state.
std::vector<std::string> Worker::describe_waits(int warp) const {
  std::vector<std::string> waits;
  std::vector<uint32_t> lanes;
  for (const Thread& thread : scheduler.threads()) {
    if (thread.warp != warp) continue;
    const std::string wait = describe_wait(thread);
    const auto place = std::size_t(std::find(waits.begin(), waits.end(), wait) - waits.begin());
    if (place == waits.size()) waits.push_back(wait), lanes.push_back(0);
    lanes[place] |= 1u << thread.lane;
  }
  for (std::size_t i = 0; i < waits.size(); ++i) waits[i] = describe_lanes(lanes[i]) + ": " + waits[i];
  return waits;
}

/// Returns the report on an instruction of the current thread that the processor has refused.
std::string Worker::crash_report() const {
  const std::string thread =
      "\n  " + describe_current(scheduler.current()) + scheduler.long_turn().describe_loop();
  if (scheduler.crashed() == Crash::division)
    return "an integer is divided by zero, or the smallest one by -1: the result is undefined in C++, the "
           "host traps, and a GPU continues with a meaningless number. Handle that case separately" +
           thread;
  if (scheduler.crashed() == Crash::stack)
    return "a thread has overflowed its stack of " + std::to_string(kUsableStackBytes / 1024) +
           " KB: infinite recursion, or local arrays that are too large. On a GPU a thread has 1 KB for what "
           "does not fit in registers, unless the host requests more (cudaLimitStackSize)" +
           thread;
  if (scheduler.crashed() == Crash::alignment)
    return "misaligned or out of bounds: a thread loads or stores a vector, such as a float4, at an address "
           "that "
           "is not a multiple of its size, or dereferences an invalid pointer. Check the row's offset, and "
           "where the pointer is written" +
           thread;
  return "out of bounds: a thread accesses " + memory.describe(scheduler.bad_address()) +
         ", where there is no memory. Check the pointer, and that no index exceeds the last row, column or "
         "stage" +
         thread;
}

std::string Worker::report_of(Crash crash) {
  scheduler.note_crash(crash);
  if (crash == Crash::memory)  // the address is unknown
    return "out of bounds: a thread accesses an address outside all memory. Check the pointer, and "
           "that no index exceeds the last row, column or stage\n  " +
           describe_current(scheduler.current()) + suspects();
  return crash_report() + suspects();
}

/// Returns the report on a current thread that has run too long without waiting.
std::string Worker::endless_report() const {
  const Thread& thread = scheduler.current();
  return "a thread has run for " + std::to_string(options().timeout) +
         " seconds (FLASHBOOK_SIM_TIMEOUT) without waiting or exiting: usually a loop whose counter does not "
         "advance. If it reads a flag that another thread sets, wait at a barrier or an mbarrier instead, "
         "or read the flag with an atomic operation, so that other threads get a turn\n  " +
         describe_current(thread) + scheduler.long_turn().describe_loop() +
         (thread.awaited ? ", after " + describe_call(thread.what, thread.where)
                         : ", before it waited for anything");
}

/// Returns the errors of a block whose threads have all exited; empty if there are none.
std::string Worker::end_report() const {
  if (const std::string loads = tensor_copies.end_error(); !loads.empty()) return loads;
  std::string wrong = mbarriers.end_error();
  if (wrong.empty()) wrong = registers.end_error();
  return wrong.empty() ? "" : "block " + triple(blockIdx) + wrong;
}

}  // namespace flashbook::sim
