#include "common/simulator/registers.h"

#include <algorithm>
#include <string>

#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

constexpr int kRegistersOfAnSm = 64 * 1024;
constexpr int kMostRegisters = 256;  ///< of a thread
constexpr int kRegisterUnit = 8;

void nothing(void* const*, uint32_t, Location) {}

constexpr Collective kIncrease{"setmaxnreg_inc", &nothing, true};
constexpr Collective kDecrease{"setmaxnreg_dec", &nothing, true};
constexpr Collective kIncreased{"setmaxnreg_inc", &nothing, true};

}  // namespace

int registers_at_start(int threads) {
  const int warps = (threads + kWarpLanes - 1) / kWarpLanes;
  return std::min(kMostRegisters, kRegistersOfAnSm / (warps * kWarpLanes) / kRegisterUnit * kRegisterUnit);
}

/// Gives registers of the running warp back, once its last lane has come.
void Worker::give_registers(int registers, Location where) {
  gather(kDecrease, kAllLanes, nullptr, where);
  if (current_->lane != 0) return;
  Warp& warp = warps_[std::size_t(current_->warp)];
  if (registers > warp.registers)
    throw Error(describe_call("setmaxnreg_dec", where) + " names " + std::to_string(registers) +
                " registers, but the warp has " + std::to_string(warp.registers) +
                ": use setmaxnreg_inc for more");
  ++warp.register_changes;
  free_registers_ += warp.registers - registers;
  warp.registers = registers;
  progress();
  for (const Thread* thread : register_waiters_) make_ready(thread->warp, 1u << thread->lane);
  register_waiters_.clear();
}

/// Takes registers for the running warp, when there are enough. Lane 0 does it; the others wait for it.
void Worker::take_registers(int registers, Location where) {
  gather(kIncrease, kAllLanes, nullptr, where);
  if (current_->lane == 0) {
    Warp& warp = warps_[std::size_t(current_->warp)];
    if (registers < warp.registers)
      throw Error(describe_call("setmaxnreg_inc", where) + " names " + std::to_string(registers) +
                  " registers, but the warp has " + std::to_string(warp.registers) +
                  ": use setmaxnreg_dec for fewer");
    ++warp.register_changes;
    while (free_registers_ < registers - warp.registers) {
      current_->registers = registers;
      register_waiters_.push_back(current_);
      suspend(Wait::registers, "setmaxnreg_inc", where);
    }
    free_registers_ -= registers - warp.registers;
    warp.registers = registers;
  }
  gather(kIncreased, kAllLanes, nullptr, where);
}

/// What a block did wrong that only its end shows; empty if nothing.
std::string Worker::register_error() const {
  for (std::size_t warp = 0; warp < warps_.size(); ++warp) {
    const std::size_t first = warp / kWarpgroupWarps * kWarpgroupWarps;
    if (warps_[warp].register_changes != warps_[first].register_changes)
      return "warp " + std::to_string(first) + " of a warpgroup executed setmaxnreg " +
             std::to_string(warps_[first].register_changes) + " times, warp " + std::to_string(warp) + " " +
             std::to_string(warps_[warp].register_changes) +
             " times: all four warps of a warpgroup must, even those that then exit";
  }
  return "";
}

void setmaxnreg_inc(int registers, Location where) {
  running_worker("setmaxnreg_inc", where).take_registers(registers, where);
}

void setmaxnreg_dec(int registers, Location where) {
  running_worker("setmaxnreg_dec", where).give_registers(registers, where);
}

}  // namespace flashbook::sim
