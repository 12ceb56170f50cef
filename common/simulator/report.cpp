/// \file
/// What went wrong, in words.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>

#include "common/simulator/language.h"
#include "common/simulator/registers.h"
#include "common/simulator/scheduler.h"

namespace flashbook::sim {
namespace {

std::string triple(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string hex(uint32_t mask) {
  char digits[11];
  std::snprintf(digits, sizeof digits, "0x%08x", mask);
  return digits;
}

/// Where to look when a phase does not end and no load is on its way. `seen`: how many phases the waiting
/// thread has found over.
std::string advice(const Mbarrier& barrier, uint32_t seen) {
  if (barrier.bytes < 0) return "Announce the bytes of all loads";
  if (barrier.pending == 0) return "More bytes were announced than the loads' boxes have";
  if (barrier.phase == 0 && barrier.pending == barrier.arrivals && !barrier.passed)
    return "Nobody has arrived yet. Who waits here for a slot to be empty names parity 1 the first time; who "
           "waits for one to be full names parity 0, and another should arrive";
  if (seen < barrier.phase && seen % 2 == barrier.phase % 2)
    return "If it is for phase " + std::to_string(seen) +
           ", the first that this thread has not found over, the barrier has "
           "gone on without it (lapped): whoever lets it go on must wait for this thread first";
  return "Look for who should arrive, and compare with the count of mbarrier_init";
}

}  // namespace

std::string to_string(Location where) {
  const std::string_view file = where.file;
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(where.line);
}

std::string describe_lanes(uint32_t lanes) {
  std::string text;
  for (int first = 0; first < kWarpLanes; ++first) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last + 1 < kWarpLanes && (lanes >> (last + 1) & 1)) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return (lanes & (lanes - 1) ? "lanes " : "lane ") + text;
}

std::string describe_call(const char* what, Location where) {
  return std::string(what) + " at " + to_string(where);
}

std::string describe_call(const Collective& collective, Location where, uint32_t mask) {
  return std::string(collective.name) + " at " + to_string(where) + " with mask " + hex(mask);
}

std::string describe_current(const Thread& thread) {
  return "in block " + triple(blockIdx) + ", thread " + triple(thread.index) + ", warp " +
         std::to_string(thread.warp) + ", lane " + std::to_string(thread.lane);
}

std::string Worker::describe_wait(const Thread& thread) const {
  const std::string call = std::string(thread.what) + " at " + to_string(thread.where);
  switch (thread.wait) {
    case Wait::nothing:
      return "has not started";
    case Wait::exited:
      return "exited";
    case Wait::barrier: {
      const Barrier& barrier = barriers_[std::size_t(thread.barrier)];
      const int needed = barrier.expected == kWholeBlock ? alive_ : barrier.expected;
      return call + ", barrier " + std::to_string(thread.barrier) + ": " + std::to_string(barrier.arrived) +
             " of " + std::to_string(needed) + " threads arrived";
    }
    case Wait::mbarrier:
    case Wait::mbarrier_poll: {
      const Mbarrier& barrier = mbarriers_[thread.mbarrier];
      return call + ", " + describe(barrier) + " for parity " + std::to_string(thread.parity) + ": " +
             describe_state(barrier) + ". " + advice(barrier, barrier.seen[std::size_t(number_of(thread))]);
    }
    case Wait::memory_poll:
      return call + ", again and again";
    case Wait::registers:
      return call + " for " + std::to_string(thread.registers) + " registers: the warp has " +
             std::to_string(warps_[std::size_t(thread.warp)].registers) + ", " +
             std::to_string(free_registers_) +
             " are free for one warp (assuming that all threads started with " +
             std::to_string(registers_at_start(int(threads_.size()))) + ")";
    case Wait::warp: {
      const Warp& warp = warps_[std::size_t(thread.warp)];
      uint32_t missing = 0;
      for (const Gathering& gathering : warp.gatherings)
        if (gathering.arrived >> thread.lane & 1) missing = gathering.mask & warp.alive & ~gathering.arrived;
      return call + " with mask " + hex(thread.mask) + ": " + describe_lanes(missing) + " missing";
    }
    case Wait::warpgroup:
      return call + ": " + std::to_string(warpgroup_of(thread)->arrived) + " of 128 threads of warpgroup " +
             std::to_string(thread.warp / kWarpgroupWarps) + " have come";
  }
  return call;
}

std::string Worker::deadlock_report() const {
  std::ostringstream report;
  // No load is on its way: it would have landed.
  if (pollers_.empty())
    report << "deadlock in block " << triple(blockIdx) << ": every thread waits or has exited";
  else
    report << "livelock in block " << triple(blockIdx) << ": threads poll, and nothing changes any more";
  std::vector<std::vector<std::string>> said;  // of each warp
  for (std::size_t warp = 0; warp < warps_.size(); ++warp) said.push_back(describe_waits(warp));
  for (std::size_t first = 0; first < said.size();) {
    std::size_t last = first;  // of neighbours of which the same can be said
    while (last + 1 < said.size() && said[last + 1] == said[first]) ++last;
    for (const std::string& line : said[first])
      report << "\n  " << (last > first ? "warps " : "warp ") << first
             << (last > first ? "-" + std::to_string(last) : "") << ", " << line;
    first = last + 1;
  }
  return report.str();
}

/// Where the lanes of a warp are, a line for those of which the same can be said.
std::vector<std::string> Worker::describe_waits(std::size_t warp) const {
  const std::size_t begin = warp * kWarpLanes;
  const std::size_t end = std::min(begin + kWarpLanes, threads_.size());
  std::vector<std::string> waits;
  std::vector<uint32_t> lanes;
  for (std::size_t i = begin; i < end; ++i) {
    const std::string wait = describe_wait(threads_[i]);
    const auto place = std::size_t(std::find(waits.begin(), waits.end(), wait) - waits.begin());
    if (place == waits.size()) waits.push_back(wait), lanes.push_back(0);
    lanes[place] |= 1u << (i - begin);
  }
  for (std::size_t i = 0; i < waits.size(); ++i) waits[i] = describe_lanes(lanes[i]) + ": " + waits[i];
  return waits;
}

/// The current thread never handed over.
std::string Worker::endless_report() const {
  const bool waited = current_->where.line > 0;
  return "a thread runs for " + std::to_string(options().timeout) +
         " seconds (FLASHBOOK_SIM_TIMEOUT) and neither waits nor exits: most often a loop whose counter does "
         "not move. If it reads a flag that another thread sets, wait at a barrier or an mbarrier instead, "
         "or read the flag by an atomic operation, so that others get their turn\n  " +
         describe_current(*current_) +
         (waited ? ", after " + describe_call(current_->what, current_->where)
                 : ", before it waited for anything");
}

/// What is wrong with a block whose threads have all exited; empty if nothing is.
std::string Worker::end_report() const {
  if (!loads_.empty()) {
    const TensorLoad& load = loads_.front();
    return "block " + triple(blockIdx) + " ends while " + describe_call("tma_load", load.where) +
           " is in flight to " + describe(mbarriers_[load.barrier]) +
           ": its shared memory goes to another block. Someone must wait for every load\n  issued " +
           describe_current(threads_[std::size_t(load.thread)]);
  }
  for (const Mbarrier& barrier : mbarriers_)
    if (barrier.bytes != 0)
      return "block " + triple(blockIdx) + " ends, and " + describe(barrier) +
             (barrier.bytes > 0 ? " waits for bytes that nobody loads: "
                                : " got bytes that nobody announced with mbarrier_arrive_expect_tx: ") +
             describe_state(barrier);
  const std::string registers = register_error();
  return registers.empty() ? "" : "block " + triple(blockIdx) + ": " + registers;
}

}  // namespace flashbook::sim
