#include "common/simulator/block/scheduler.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "common/simulator/atomics.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/language.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

/// The size of the guard at the end of a stack, which stops infinite recursion. (The guard need not be
/// page-aligned, so up to one page of it may be unprotected.)
constexpr std::size_t kStackGuard = sizeof(void*) == 4 ? 0 : 16 * 1024;
/// Address space of a fiber's stack; memory is committed on first touch. The size exceeds a power of two by a
/// page and some cache lines: otherwise the locals of all threads would compete for the same few sets of the
/// caches and the TLB.
constexpr std::size_t kStackBytes =
    kUsableStackBytes + kStackGuard + (sizeof(void*) == 4 ? 8192 : 4096) + 5 * 64;

/// Whether memory is committed on allocation instead of on first touch.
constexpr bool kTakesMemoryAtOnce = sizeof(void*) == 4;

/// The maximum number of stacks with a guard. Linux allows about 65,000 mappings per process, and each guard
/// creates two.
constexpr int kMaxGuards = 16 * 1024;
std::atomic<int> guards = 0;

/// Protects the guard at the end of a stack.
void guard(unsigned char* stack) {
  const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = (std::uintptr_t(stack) + page - 1) & ~(page - 1);
  if (page <= kStackGuard && guards++ < kMaxGuards)
    mprotect(reinterpret_cast<void*>(begin), kStackGuard / page * page, PROT_NONE);
}

/// The block is stuck after this many rounds in which its threads poll only memory that the block itself can
/// change: no kernel polls that long on purpose.
constexpr int kMaxFruitlessPolls = 1 << 15;

/// After this many consecutive reads of unchanged memory, other threads get a turn.
constexpr int kPollsBeforeOthersRun = 64;

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// Returns the mask of a warp's lanes that have threads.
uint32_t lanes_of_warp(int warp, int threads) {
  const int lanes = threads - warp * kWarpLanes;
  return lanes >= kWarpLanes ? ~0u : (1u << lanes) - 1;
}

}  // namespace

std::string describe_current(const Thread& thread) {
  return "in block " + triple(blockIdx) + ", thread " + triple(thread.index) + ", warp " +
         std::to_string(thread.warp) + ", lane " + std::to_string(thread.lane);
}

Random::Random(uint64_t seed, uint64_t block) : state_(mixed(seed) + block) {}

int Random::below(int count) {
  state_ += 0x9e3779b97f4a7c15;
  return int(mixed(state_) % uint64_t(count));
}

Scheduler::Scheduler(Scheduled& block) : block_(block), fibers_(std::make_unique<Fiber[]>(kMaxThreads)) {
  if (!kTakesMemoryAtOnce) provide_stacks(kMaxThreads);
}

Scheduler::~Scheduler() {
  if (stacks_) munmap(stacks_, stack_bytes_);
  guards -= guarded_fibers_;
}

/// Allocates stacks for this many threads.
void Scheduler::provide_stacks(int count) {
  const std::size_t bytes = kStackBytes * std::size_t(count);
  if (bytes <= stack_bytes_) return;
  if (stacks_) munmap(stacks_, stack_bytes_);
  void* stacks =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) throw std::bad_alloc();
  stacks_ = static_cast<unsigned char*>(stacks);
  stack_bytes_ = bytes;
}

const Thread* Scheduler::owner_of_local(const void* address) const {
  const std::size_t stack = (std::uintptr_t(address) - std::uintptr_t(stacks_)) / kStackBytes;
  const auto found = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return thread.fiber && std::size_t(thread.fiber - fibers_.get()) == stack;
  });
  return found == threads_.end() ? nullptr : &*found;
}

std::span<const unsigned char> Scheduler::stacks() const { return {stacks_, stack_bytes_}; }

void Scheduler::enter_grid(dim3 block, Observer* observer) {
  observer_ = observer;
  const int count = int(block.x * block.y * block.z);
  if (kTakesMemoryAtOnce) provide_stacks(count);
  threads_.resize(std::size_t(count));
  warps_.resize(std::size_t((count + kWarpLanes - 1) / kWarpLanes));
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads_[std::size_t(i)];
    thread.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    thread.number = i;
    thread.warp = int16_t(i / kWarpLanes);
    thread.lane = int16_t(i % kWarpLanes);
  }
  synchronised_.resize(threads_.size());
  for (std::size_t warp = 0; warp < warps_.size(); ++warp)
    warps_[warp].first = &threads_[warp * std::size_t(kWarpLanes)];
}

void Scheduler::begin_block(Random random, bool random_order) {
  alive_ = int(threads_.size());
  for (Thread& thread : threads_) {
    thread.fiber = nullptr;
    thread.exited = false;
    thread.awaited = nullptr;
    thread.where = {};
  }
  std::fill(synchronised_.begin(), synchronised_.end(), 0);
  for (int i = 0; i < warps(); ++i) {
    Lanes& warp = warps_[std::size_t(i)];
    warp.alive = warp.ready = lanes_of_warp(i, alive_);
  }
  ready_warps_ = lanes_of_warp(0, warps());
  current_ = nullptr;
  lanes_ = nullptr;
  error_.clear();
  pollers_.clear();
  fruitless_polls_ = memory_polls_ = 0;
  waits_for_blocks_ = false;
  given_up_ = false;
  crashed_.reset();
  waiting_fiber_ = nullptr;
  used_fibers_ = 0;
  idle_fibers_.clear();
  in_any_order_ = options().async == Async::random;
  random_order_ = random_order;
  in_order_ = stays_with_warp_ = !in_any_order_ && !random_order_;
  random_ = random;
  if (random_order_) shuffle_warps();
}

/// Chooses how the warps of this block take random turns. If every turn chose a new warp, no warp would get
/// far ahead of the others. So warps have priorities that rarely change, as in Burckhardt, Kothari, Musuvathi
/// and Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010).
/// Each block draws its average number of turns between changes: 1, 16, 256 or 4096.
void Scheduler::shuffle_warps() {
  turns_a_priority_ = 1 << 4 * random_.below(4);
  for (int& priority : priority_) priority = random_.below(1 << 30);
}

int Scheduler::random_warp() {
  if (random_.below(turns_a_priority_) == 0)
    priority_[std::size_t(random_.below(int(warps_.size())))] = random_.below(1 << 30);
  int first = std::countr_zero(ready_warps_);
  for (uint32_t rest = ready_warps_ & (ready_warps_ - 1); rest; rest &= rest - 1)
    if (const int warp = std::countr_zero(rest); priority_[std::size_t(warp)] > priority_[std::size_t(first)])
      first = warp;
  return first;
}

/// Removes the next thread to run from the ready ones and returns it; null if there is none.
inline Thread* Scheduler::next_ready() {
  if (!ready_warps_) return nullptr;
  int warp;
  if (random_order_) {
    warp = random_warp();
  } else {  // stay with the warp if possible, otherwise take the next one
    const uint32_t not_before = current_ ? ready_warps_ & ~0u << current_->warp : 0;
    warp = std::countr_zero(not_before ? not_before : ready_warps_);
  }
  uint32_t& ready = warps_[std::size_t(warp)].ready;
  const int lane = std::countr_zero(ready);
  ready &= ready - 1;
  if (!ready) ready_warps_ &= ~(1u << warp);
  return &threads_[std::size_t(warp * kWarpLanes + lane)];
}

/// Returns the next thread to run. If no thread is ready, copies land, since they can be delayed no longer;
/// then polling threads try again. Returns null if the block has finished, is stuck, or was ended by an
/// error. The calling thread ran on the fiber `running`.
inline Thread* Scheduler::next_thread(Fiber& running) {
  // A missing wait for a load shows only if that load is still in flight when a later load has landed. So in
  // random order any load may land first, and few land before they are needed.
  if (in_any_order_ && block_.has_copies() && random_.below(1024) == 0) block_.land_copy(true);
  for (;;) {
    if (!error_.empty()) return nullptr;
    if (Thread* next = next_ready()) return next;
    if (alive_ == 0) return nullptr;
    if (block_.land_copy(in_any_order_)) continue;
    if (!wake_pollers()) return nullptr;
    if (!kHasOsThreads && waits_for_blocks_) {
      waiting_fiber_ = &running;
      Fiber::switch_to(running, os_thread_);
    }
  }
}

/// Makes `next` the current thread.
inline void Scheduler::run_next(Thread& next) {
  current_ = &next;
  lanes_ = &warps_[std::size_t(next.warp)];
  threadIdx = next.index;
}

bool Scheduler::run() {
  Fiber* fiber = std::exchange(waiting_fiber_, nullptr);
  if (!fiber) {
    current_ = next_ready();
    fiber = current_->fiber = idle_fiber();
    ++turns_;
  }
  run_next(*current_);
  is_running_ = true;
#ifdef FLASHBOOK_FIBERS_BY_ASYNCIFY
  // Exceptions are caught outside the fiber's function, since a call that may be repeated cannot contain a
  // catch.
  run_guarded([&] { Fiber::switch_to(os_thread_, *fiber); });
#else
  Fiber::switch_to(os_thread_, *fiber);
#endif
  is_running_ = false;
  return waiting_fiber_ != nullptr;
}

void Scheduler::make_ready(int warp, uint32_t lanes) {
  if (!lanes) return;
  warps_[std::size_t(warp)].ready |= lanes;
  ready_warps_ |= 1u << warp;
}

bool Scheduler::has_synchronised_since(int warp, uint64_t turn) const {
  const auto first = std::size_t(warp * kWarpLanes);
  const std::size_t last = std::min(first + kWarpLanes, synchronised_.size());
  return std::any_of(&synchronised_[first], synchronised_.data() + last,
                     [turn](uint64_t known) { return known > turn; });
}

/// Returns a fiber that will run threads from the beginning.
Fiber* Scheduler::idle_fiber() {
  Fiber* fiber;
  if (idle_fibers_.empty()) {
    fiber = &fibers_[std::size_t(used_fibers_++)];
    if (used_fibers_ > guarded_fibers_) guard(stacks_ + kStackBytes * std::size_t(guarded_fibers_++));
  } else {
    fiber = idle_fibers_.back();
    idle_fibers_.pop_back();
  }
  const auto index = int(fiber - fibers_.get());
  fiber->start(stacks_ + kStackBytes * std::size_t(index), kStackBytes, &run_fiber, this);
  return fiber;
}

void Scheduler::run_fiber(void* scheduler) { static_cast<Scheduler*>(scheduler)->run_threads(); }

/// Runs the current thread and then, each time a thread exits, the next one that has not started.
void Scheduler::run_threads() {
  for (;;) {
    run_current();
    Fiber* fiber = std::exchange(current_->fiber, nullptr);
    Thread* next = next_thread(*fiber);
    if (!next) Fiber::leave(*fiber, os_thread_);  // the block has finished or is stuck
    ++turns_;
    run_next(*next);
    if (next->fiber) {
      idle_fibers_.push_back(fiber);
      Fiber::leave(*fiber, *next->fiber);
    }
    next->fiber = fiber;
  }
}

/// Runs the current thread until it exits. Where possible, no exception leaves the fiber.
void Scheduler::run_current() {
#ifdef FLASHBOOK_FIBERS_BY_ASYNCIFY
  block_.run_thread();
#else
  run_guarded([this] { block_.run_thread(); });
#endif
}

/// Runs `work`; an exception that it throws is the error that ends the block.
template <typename Work>
void Scheduler::run_guarded(const Work& work) {
  std::string error;
  try {
    work();
    return;
  } catch (const Fiber::Full&) {
    crashed_ = Crash::stack;
    return;
  } catch (const Error& broken_rule) {
    error = broken_rule.what();
  } catch (const std::exception& exception) {
    error = std::string("the kernel threw: ") + exception.what();
  } catch (...) {
    error = "the kernel threw something that is not a std::exception";
  }
  error_ = error + "\n  " + describe_current(*current_);
}

void Scheduler::exit_current() {
  current_->exited = true;
  --alive_;
  progress();
  warps_[std::size_t(current_->warp)].alive &= ~(1u << current_->lane);
}

void Scheduler::abandon(const std::string& error) {
  error_ = error + "\n  " + describe_current(*current_);
  Fiber::leave(*current_->fiber, os_thread_);
}

/// Runs the next thread instead of the current one.
[[gnu::noinline]] void Scheduler::hand_over(Thread& self) {
  if (self.awaited != &memory_) works_again();
  Thread* next = next_thread(*self.fiber);
  if (!next) Fiber::leave(*self.fiber, os_thread_);  // the block is stuck
  if (next == &self) return;
  if (!next->fiber) next->fiber = idle_fiber();
  run_next(*next);
  Fiber::switch_to(*self.fiber, *next->fiber);
}

void Scheduler::poll(const Awaited& awaited, const char* what, Location where) {
  pollers_.push_back(current_);
  suspend(awaited, what, where);
  std::erase(pollers_, current_);
}

bool Scheduler::is_polling_memory() const {
  return std::any_of(pollers_.begin(), pollers_.end(),
                     [this](const Thread* thread) { return thread->awaited == &memory_; });
}

/// Lets polling threads try again. Returns false if they have failed for too long.
bool Scheduler::wake_pollers() {
  if (pollers_.empty()) return false;
  ++fruitless_polls_;
  if (is_polling_memory()) {
    waits_for_blocks_ = true;
    stays_with_warp_ = false;
    if (!block_.wait_for_other_blocks(fruitless_polls_)) return false;
  } else if (fruitless_polls_ > kMaxFruitlessPolls) {
    return false;
  }
  for (const Thread* thread : pollers_) make_ready(thread->warp, 1u << thread->lane);
  return true;
}

void Scheduler::poll_memory(const char* what, Location where) {
  synchronise();
  if (++memory_polls_ >= kPollsBeforeOthersRun) poll(memory_, what, where);
}

void poll_memory(const char* what, Location where) {
  if (!current_worker) return;
  current_worker->meets_others_at_word();
  current_worker->scheduler.poll_memory(what, where);
}

void change_memory() {
  if (!current_worker) return;
  current_worker->scheduler.progress();
  current_worker->meets_others_at_word();
}

void change_counter(const void* address, const char* what, Location where) {
  if (!current_worker) return;
  current_worker->scheduler.progress();
  current_worker->counter_loop.add(address, current_worker->scheduler, what, where);
  current_worker->meets_others_at_word();
}

void Scheduler::crash(Crash crash, const void* address) {
  if (!is_running_) return;
  const bool is_in_stacks = std::uintptr_t(address) - std::uintptr_t(stacks_) < stack_bytes_;
  crashed_ = crash == Crash::memory && is_in_stacks ? Crash::stack : crash;
  bad_address_ = address;
  long_turn_.note_place();
  Fiber::leave(*current_->fiber, os_thread_);
}

void Scheduler::tick() {
  if (!is_running_) return;
  given_up_ = long_turn_.tick(turns_ + hand_overs_, options().timeout);
  if (given_up_) Fiber::leave(*current_->fiber, os_thread_);
}

}  // namespace flashbook::sim
