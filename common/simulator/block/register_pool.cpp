#include "common/simulator/block/register_pool.h"

#include <algorithm>
#include <string>

#include "common/simulator/block/warps.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/registers.h"

namespace flashbook::sim {
namespace {

constexpr int kRegistersPerSm = 64 * 1024;
constexpr int kMaxRegisters = 256;  ///< limit per thread
constexpr int kRegisterUnit = 8;

void nothing(void* const*, uint32_t, Location) {}

constexpr Collective kIncrease{"setmaxnreg_inc", &nothing, true};
constexpr Collective kDecrease{"setmaxnreg_dec", &nothing, true};
constexpr Collective kIncreased{"setmaxnreg_inc", &nothing, true};

}  // namespace

int registers_at_start(int threads, int blocks) {
  const int warps = (threads + kWarpLanes - 1) / kWarpLanes;
  return std::min(kMaxRegisters,
                  kRegistersPerSm / (blocks * warps * kWarpLanes) / kRegisterUnit * kRegisterUnit);
}

void RegisterPool::enter_grid(int threads, const LaunchBounds& bounds) {
  at_start_ = registers_at_start(bounds.threads ? bounds.threads : threads, std::max(1, bounds.blocks));
}

void RegisterPool::begin_block() {
  of_warps_.assign(std::size_t(scheduler_.warps()), {.registers = at_start_});
  free_ = 0;
  waiting_.clear();
}

void RegisterPool::give(int registers, Location where) {
  log("setmaxnreg_dec", registers, where);
  warps_.take_part(kDecrease, kAllLanes, nullptr, where);
  const Thread& self = scheduler_.current();
  if (self.lane != 0) return;
  OfWarp& warp = of_warps_[std::size_t(self.warp)];
  if (registers > warp.registers)
    throw Error(describe_call("setmaxnreg_dec", where) + " requests " + std::to_string(registers) +
                " registers, but the warp has only " + std::to_string(warp.registers) +
                ": use setmaxnreg_inc to get more");
  ++warp.changes;
  free_ += warp.registers - registers;
  warp.registers = registers;
  scheduler_.progress();
  for (const Thread* thread : waiting_) scheduler_.make_ready(thread->warp, 1u << thread->lane);
  waiting_.clear();
}

// Lane 0 allocates; the others wait for it.
void RegisterPool::take(int registers, Location where) {
  log("setmaxnreg_inc", registers, where);
  warps_.take_part(kIncrease, kAllLanes, nullptr, where);
  const Thread& self = scheduler_.current();
  if (self.lane == 0) {
    OfWarp& warp = of_warps_[std::size_t(self.warp)];
    if (registers < warp.registers)
      throw Error(describe_call("setmaxnreg_inc", where) + " requests " + std::to_string(registers) +
                  " registers, but the warp already has " + std::to_string(warp.registers) +
                  ": use setmaxnreg_dec to get fewer");
    ++warp.changes;
    while (free_ < registers - warp.registers) {
      warp.wanted = registers;
      waiting_.push_back(&self);
      scheduler_.suspend(*this, "setmaxnreg_inc", where);
    }
    free_ -= registers - warp.registers;
    warp.registers = registers;
  }
  warps_.take_part(kIncreased, kAllLanes, nullptr, where);
}

/// Logs a request of the current thread.
void RegisterPool::log(const char* what, int registers, Location where) const {
  if (EventLog* log = scheduler_.log())
    log->add(scheduler_.current().number,
             {EventKind::does, what, where, "", "to " + std::to_string(registers) + " registers per thread"});
}

std::string RegisterPool::describe_wait(const Thread& thread) const {
  const OfWarp& warp = of_warps_[std::size_t(thread.warp)];
  return " for " + std::to_string(warp.wanted) + " registers: the warp has " +
         std::to_string(warp.registers) + ", " + std::to_string(free_) +
         " are free for one warp (assuming that all threads started with " + std::to_string(at_start_) + ")";
}

std::string RegisterPool::end_error() const {
  for (std::size_t warp = 0; warp < of_warps_.size(); ++warp) {
    const std::size_t first = warp / kWarpgroupWarps * kWarpgroupWarps;
    if (of_warps_[warp].changes != of_warps_[first].changes)
      return ": warp " + std::to_string(first) + " of a warpgroup executed setmaxnreg " +
             std::to_string(of_warps_[first].changes) + " times, warp " + std::to_string(warp) + " " +
             std::to_string(of_warps_[warp].changes) +
             " times: all four warps of a warpgroup must execute it the same number of times, even those "
             "that then exit";
  }
  return "";
}

void setmaxnreg_inc(int registers, Location where) {
  running_worker("setmaxnreg_inc", where).registers.take(registers, where);
}

void setmaxnreg_dec(int registers, Location where) {
  running_worker("setmaxnreg_dec", where).registers.give(registers, where);
}

}  // namespace flashbook::sim
