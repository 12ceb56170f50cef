#include "common/simulator/scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "common/simulator/language.h"
#include "common/simulator/registers.h"
#include "common/simulator/static_shared.h"

namespace flashbook::sim {
namespace {

/// Address space of a fiber's stack; memory is taken where it is touched. Not a power of two but a page and
/// some cache lines more, since otherwise the locals of all threads would compete for the same few sets of
/// the caches and the TLB.
constexpr std::size_t kStackBytes = 256 * 1024 + 4096 + 5 * 64;

constexpr std::size_t kSharedAlignment = 1024;

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// The lanes that a warp of a block has.
uint32_t lanes_of_warp(int warp, int threads) {
  const int lanes = threads - warp * kWarpLanes;
  return lanes >= kWarpLanes ? ~0u : (1u << lanes) - 1;
}

}  // namespace

thread_local constinit Worker* current_worker = nullptr;

int Random::below(int count) {
  state_ += 0x9e3779b97f4a7c15;
  return int(mixed(state_) % uint64_t(count));
}

Worker::Worker() : fibers_(std::make_unique<Fiber[]>(kMaxThreads)) {
  void* stacks = mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) throw std::bad_alloc();
  stacks_ = static_cast<unsigned char*>(stacks);
  if (watcher) observer_ = watcher->make_observer();
  shared_ = static_cast<unsigned char*>(std::aligned_alloc(kSharedAlignment, kMaxSharedBytes));
  if (!shared_) throw std::bad_alloc();
}

Worker::~Worker() {
  munmap(stacks_, kStackBytes * kMaxThreads);
  std::free(shared_);
}

void Worker::enter_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                        const std::function<void()>& body) {
  grid_ = gridDim = grid;
  blockDim = block;
  shared_bytes_ = dynamic_shared_bytes;
  body_ = &body;
  static_shared_ = static_shared_arrays();
  const int count = int(block.x * block.y * block.z);
  threads_.resize(std::size_t(count));
  warps_.resize(std::size_t((count + kWarpLanes - 1) / kWarpLanes));
  warpgroups_.resize(std::size_t(count / kWarpgroupThreads));
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads_[std::size_t(i)];
    thread.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    thread.warp = i / kWarpLanes;
    thread.lane = i % kWarpLanes;
  }
}

std::optional<std::string> Worker::run_block(uint64_t number, uint64_t seed) {
  begin_block(number, seed);
  current_worker = this;
  if (observer_) observer_->block_begins({number, alive_, shared_, shared_bytes_, static_shared_});
  current_ = next_ready();
  current_->fiber = idle_fiber();
  threadIdx = current_->index;
  Fiber::switch_to(os_thread_, *current_->fiber);
  if (error_.empty()) {
    if (given_up_)
      error_ = endless_report();
    else
      error_ = alive_ > 0 ? deadlock_report() : end_report();
  }
  if (observer_) observer_->block_ends();
  current_worker = nullptr;
  return error_.empty() ? std::nullopt : std::optional(std::move(error_));
}

void Worker::begin_block(uint64_t number, uint64_t seed) {
  const uint64_t row = number / grid_.x;
  blockIdx = {unsigned(number % grid_.x), unsigned(row % grid_.y), unsigned(row / grid_.y)};

  // Shared memory holds what the machine left there, which no kernel may use: NaN, whatever its type.
  std::memset(shared_, 0xff, shared_bytes_);
  for (const auto& array : static_shared_) std::memset(array.data(), 0xff, array.size());

  alive_ = int(threads_.size());
  for (Thread& thread : threads_) {
    thread.fiber = nullptr;
    thread.wait = Wait::nothing;
    thread.where = {};
    thread.copies.clear();
    thread.copy_groups = 0;
    thread.stores.clear();
    thread.store_groups = 0;
  }
  const int registers = registers_at_start(alive_);
  for (int i = 0; i < int(warps_.size()); ++i) {
    Warp& warp = warps_[std::size_t(i)];
    warp.alive = warp.ready = lanes_of_warp(i, alive_);
    warp.gatherings.clear();
    warp.registers = registers;
    warp.register_changes = 0;
  }
  for (int i = 0; i < int(warpgroups_.size()); ++i) {
    Warpgroup& group = warpgroups_[std::size_t(i)];
    group.collective = nullptr;
    group.arrived = 0;
    group.lanes = {};
    group.products.begin_block(i * kWarpgroupThreads, {shared_, uint32_t(shared_bytes_)});
  }
  free_registers_ = 0;
  register_waiters_.clear();
  mbarriers_.clear();
  loads_.clear();
  pollers_.clear();
  fruitless_polls_ = memory_polls_ = quiet_ticks_ = 0;
  given_up_ = false;
  ready_warps_ = lanes_of_warp(0, int(warps_.size()));
  barriers_.fill({});
  current_ = nullptr;
  error_.clear();
  used_fibers_ = 0;
  idle_fibers_.clear();
  random_order_ = seed != 0;
  random_ = Random(mixed(seed) + number);
  if (random_order_) shuffle_warps();
}

/// How the warps of this block take turns at random. A warp that is always chosen anew never gets far ahead
/// of the others; so, as in Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with
/// Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010), warps have priorities, of which few change. How
/// many turns pass between two changes is the block's own: 1, 16, 256 or 4096.
void Worker::shuffle_warps() {
  turns_a_priority_ = 1 << 4 * random_.below(4);
  for (int& priority : priority_) priority = random_.below(1 << 30);
}

/// The next thread to run, taken from those that are ready; null if there is none.
Thread* Worker::next_ready() {
  if (!ready_warps_) return nullptr;
  uint32_t candidates = ready_warps_;
  if (random_order_) {
    if (random_.below(turns_a_priority_) == 0)
      priority_[std::size_t(random_.below(int(warps_.size())))] = random_.below(1 << 30);
    int first = std::countr_zero(candidates);
    for (uint32_t rest = candidates & (candidates - 1); rest; rest &= rest - 1)
      if (const int warp = std::countr_zero(rest);
          priority_[std::size_t(warp)] > priority_[std::size_t(first)])
        first = warp;
    candidates = 1u << first;
  } else if (current_) {
    // Stay with the warp, else take the next one.
    const uint32_t not_before = ready_warps_ & ~0u << current_->warp;
    if (not_before) candidates = not_before;
  }
  const int warp = std::countr_zero(candidates);
  uint32_t& ready = warps_[std::size_t(warp)].ready;
  const int lane = std::countr_zero(ready);
  ready &= ready - 1;
  if (!ready) ready_warps_ &= ~(1u << warp);
  return &threads_[std::size_t(warp * kWarpLanes + lane)];
}

/// The next thread to run. When none is ready, copies land, since they can be no later, and then those who
/// poll try again. Null if the block is over or stuck, or an error has ended it.
Thread* Worker::next_thread() {
  // A load that should have been waited for shows if it is still on its way when a later one has landed. So
  // at random any of them lands first, and few land before somebody needs them.
  const bool in_any_order = options().async == Async::random;
  if (in_any_order && !loads_.empty() && random_.below(1024) == 0) land_one(true);
  for (;;) {
    if (!error_.empty()) return nullptr;
    if (Thread* next = next_ready()) return next;
    if (alive_ == 0) return nullptr;
    if (!land_one(in_any_order) && !wake_pollers()) return nullptr;
  }
}

void Worker::make_ready(int warp, uint32_t lanes) {
  if (!lanes) return;
  warps_[std::size_t(warp)].ready |= lanes;
  ready_warps_ |= 1u << warp;
}

/// A fiber that will run threads from its beginning.
Fiber* Worker::idle_fiber() {
  Fiber* fiber;
  if (idle_fibers_.empty()) {
    fiber = &fibers_[std::size_t(used_fibers_++)];
  } else {
    fiber = idle_fibers_.back();
    idle_fibers_.pop_back();
  }
  const auto index = int(fiber - fibers_.get());
  fiber->start(stacks_ + kStackBytes * std::size_t(index), kStackBytes, &run_fiber, this);
  return fiber;
}

void Worker::run_fiber(void* worker) { static_cast<Worker*>(worker)->run_threads(); }

/// Runs the current thread, and then every thread that has not started when one exits.
void Worker::run_threads() {
  for (;;) {
    run_current();
    Fiber* fiber = std::exchange(current_->fiber, nullptr);
    Thread* next = next_thread();
    if (!next) Fiber::leave(*fiber, os_thread_);  // the block is over, or stuck
    ++turns_;
    current_ = next;
    threadIdx = next->index;
    if (next->fiber) {
      idle_fibers_.push_back(fiber);
      Fiber::leave(*fiber, *next->fiber);
    }
    next->fiber = fiber;
  }
}

/// Runs the current thread to its exit. Nothing that it throws leaves the fiber.
void Worker::run_current() {
  std::string error;
  try {
    (*body_)();
    require_stores_waited_for();
    exit_current();
    return;
  } catch (const Error& broken_rule) {
    error = broken_rule.what();
  } catch (const std::exception& exception) {
    error = std::string("the kernel threw: ") + exception.what();
  } catch (...) {
    error = "the kernel threw something that is no std::exception";
  }
  error_ = error + "\n  " + describe_current(*current_);
}

void Worker::exit_current() {
  leave_warpgroup();
  current_->wait = Wait::exited;
  --alive_;
  progress();
  Warp& warp = warps_[std::size_t(current_->warp)];
  warp.alive &= ~(1u << current_->lane);
  if (observer_) observer_->releases(number_of(*current_), &barriers_[0]);
  // Others may have waited for this thread only: from compute capability 7.0 on, exited threads take part in
  // nothing.
  complete_if_full(barriers_[0]);
  for (std::size_t i = warp.gatherings.size(); i-- > 0;) complete_if_full(warp, i);
}

void Worker::abandon(const std::string& error) {
  error_ = error + "\n  " + describe_current(*current_);
  Fiber::leave(*current_->fiber, os_thread_);
}

/// Lets others run until the current thread is made ready again.
void Worker::suspend(Wait wait, const char* what, Location where) {
  Thread& self = *current_;
  self.wait = wait;
  self.what = what;
  self.where = where;
  memory_polls_ = 0;
  ++turns_;
  Thread* next = next_thread();
  if (!next) Fiber::leave(*self.fiber, os_thread_);  // the block is stuck
  if (next == &self) return;
  if (!next->fiber) next->fiber = idle_fiber();
  current_ = next;
  threadIdx = next->index;
  Fiber::switch_to(*self.fiber, *next->fiber);
}

}  // namespace flashbook::sim
