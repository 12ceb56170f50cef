#include "common/simulator/trace/faults.h"

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <vector>

namespace flashbook::sim {
namespace {

constexpr std::size_t kMaxReported = 8;

std::string name_of_thread(int thread) {
  return "thread " + std::to_string(thread) + " (warp " + std::to_string(thread / 32) + ", lane " +
         std::to_string(thread % 32) + ")";
}

const char* verb(Access access) {
  return !writes(access) ? "read" : access == Access::store ? "wrote" : "updated atomically";
}

constexpr const char* kOldValue =
    "the flag that the second one waits for was set to the value it already had, from the previous launch or "
    "round, so the wait ends at once: reset the flag in between, or wait for a different value each time";

std::string advice_for(Race::Rule rule, bool one_warp) {
  switch (rule) {
    case Race::Rule::proxy_fence:
      return "ordinary stores are not visible to the async proxy on their own: every thread that wrote must "
             "call fence_proxy_async before the barrier at which the issuing thread waits";
    case Race::Rule::async_read:
      return "nothing ensures that the read has finished: wait for it (wgmma_wait, tma_store_wait_read, the "
             "mbarrier of a load), then pass a barrier before overwriting; if the write is meant to come "
             "first, put a barrier between the write and the read";
    case Race::Rule::async_write:
      return "nothing ensures that the data has landed: for a load, wait at its mbarrier; for a store, call "
             "tma_store_wait (tma_store_wait_read only ensures that the tile has been read)";
    case Race::Rule::in_flight:
      return "the copy has not landed: the thread that copied must call cp_async_commit and then "
             "cp_async_wait for that group; all other threads need a barrier after that. cp_async_wait<n> "
             "leaves the last n groups in flight";
    case Race::Rule::old_value:
      return kOldValue;
    case Race::Rule::launch_before:
    case Race::Rule::order:
      break;
  }
  if (one_warp)
    return "nothing orders the two: look for a missing __syncwarp or __syncthreads between these lines (a "
           "shuffle does not order memory accesses)";
  return "nothing orders the two: look for a missing barrier between these lines, or between one iteration "
         "of a loop and the next";
}

std::string advice_for(const BlockConflict& conflict) {
  if (conflict.rule == Race::Rule::async_write && writes(conflict.first.access) &&
      writes(conflict.second.access) && conflict.first.block == conflict.second.block)
    return "both write there, and nothing determines which one comes last: two tiles overlap, usually "
           "because of a wrong row or column, or the same tile is stored twice. If that is intended, put a "
           "tma_store_wait between them";
  if (conflict.rule == Race::Rule::proxy_fence)
    return "TMA does not see plain stores to global memory from the same launch: between the store and the "
           "copy, the writing or the issuing thread must call fence_proxy_async_global (fence_proxy_async "
           "covers only shared memory); or store with tma_store, or split the kernel into two launches";
  if (conflict.rule == Race::Rule::launch_before && !conflict.ends_before_wait)
    return "no launch in between waits for it, so nothing guarantees that it has finished: in a chain of "
           "dependent launches, every kernel must call wait_for_launch_before";
  if (conflict.rule == Race::Rule::launch_before && conflict.launches_before > 1)
    return "the launch in between lets this one begin before the launch ahead of it is known to have "
           "finished: call wait_for_launch_before here, or there ahead of let_dependents_launch";
  if (conflict.rule == Race::Rule::launch_before)
    return "launch_dependent lets a kernel begin before the previous launch has finished: call "
           "wait_for_launch_before, and put a barrier after it for the threads that do not call it";
  if (conflict.rule == Race::Rule::old_value) return kOldValue;
  if (conflict.first.block == conflict.second.block)
    return advice_for(conflict.rule, conflict.first.thread / 32 == conflict.second.thread / 32);
  return "the blocks of a grid run in any order: let only one of them write there, use atomics, or split the "
         "kernel into two launches. To hand data over through a flag, write the data, "
         "call __threadfence, and then set the flag";
}

}  // namespace

bool Faults::is_better(const Places& places, uint64_t block, bool one_warp) const {
  const auto known = found_.find(places);
  if (known == found_.end()) return true;
  const Fault& fault = known->second;
  return block < fault.block || (block == fault.block && fault.one_warp && !one_warp);
}

void Faults::add(const Race& race, uint64_t block, int threads, const std::string& memory,
                 const std::string& waited) {
  const int first = race.first.who, second = race.second.who;
  const bool one_warp = first < threads && second < threads && first / 32 == second / 32;
  const Places places = std::minmax(
      {std::pair(race.first.site, race.first.access), std::pair(race.second.site, race.second.access)});
  if (!is_better(places, block, one_warp)) return;
  const auto side = [&](const Race::Side& from) {
    return Side{from.who < threads ? name_of_thread(from.who) : "the async proxy", from.site, from.access};
  };
  found_[places] = {
      block,
      one_warp,
      "data race in block " + std::to_string(block) + " on " + memory,
      side(race.first),
      side(race.second),
      advice_for(race.rule, one_warp) + (waited.empty() ? ""
                                                        : ": the last wait of the thread that copied, " +
                                                              waited + ", does not cover this copy"),
      ++turns_};
}

void Faults::add(const BlockConflict& conflict, int threads) {
  const Places places = std::minmax({std::pair(conflict.first.site, conflict.first.access),
                                     std::pair(conflict.second.site, conflict.second.access)});
  if (!is_better(places, conflict.second.block, false)) return;
  const bool before = conflict.rule == Race::Rule::launch_before;
  const std::string launch =
      conflict.launches_before == 1
          ? "the previous launch"
          : "the launch " + std::to_string(conflict.launches_before) + " before this one";
  const bool one_block = conflict.first.block == conflict.second.block && !before;
  const auto side = [&](const BlockConflict::Side& from) {
    const std::string who = from.thread < threads ? name_of_thread(from.thread) : "the async proxy";
    if (before && &from == &conflict.first)
      return Side{launch + ", in block " + std::to_string(from.block) + ",", from.site, from.access};
    return Side{one_block ? who : "block " + std::to_string(from.block), from.site, from.access};
  };
  char address[24];
  std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(conflict.address));
  found_[places] = {conflict.second.block,
                    false,
                    (one_block ? "data race in block " + std::to_string(conflict.first.block)
                     : before  ? "data race with " + launch
                               : std::string("data race between blocks")) +
                        " on global memory " + address,
                    side(conflict.first),
                    side(conflict.second),
                    advice_for(conflict),
                    ++turns_};
}

void Faults::add_unwritten(const char* kind, Site site, uint64_t block, int thread,
                           const std::string& memory) {
  const Places places{{site, Access::load}, {site, Access::load}};
  if (!is_better(places, block, false)) return;
  Fault& fault = found_[places];
  fault.block = block;
  fault.one_warp = false;
  fault.what = std::string("uninitialised ") + kind + " memory is read in block " + std::to_string(block) +
               ", " + memory;
  fault.first = {name_of_thread(thread), site, Access::load};
  fault.second = fault.first;
  fault.second.who.clear();
  fault.turn = ++turns_;
  fault.unwritten = true;
  fault.advice =
      std::string_view(kind) == "device"
          ? "no thread has written it since it was allocated, so its contents are arbitrary: clear it, or "
            "check the index"
          : "no thread of the block has written it, so it holds whatever the previous block left there: "
            "check the index, and how many threads write";
}

void Faults::add_suspects(uint64_t block, std::string suspects) {
  if (!suspects.empty()) suspects_.emplace(block, std::move(suspects));
}

std::string Faults::report(const void* kernel) const {
  std::vector<Site> sites;
  // The first fault often causes the others, but races come before reads of unwritten memory.
  std::vector<const Fault*> in_order;
  for (const auto& [places, fault] : found_) {
    sites.push_back(fault.first.site);
    sites.push_back(fault.second.site);
    in_order.push_back(&fault);
  }
  std::sort(in_order.begin(), in_order.end(), [](const Fault* a, const Fault* b) {
    return std::tuple(a->unwritten, a->block, a->turn) < std::tuple(b->unwritten, b->block, b->turn);
  });
  const std::map<Site, SourceLine> lines = source_lines(sites, kernel);
  const auto describe = [&](const Side& side) {
    return "\n  " + side.who + " " + verb(side.access) + " at " + lines.at(side.site).described();
  };
  std::string text;
  std::size_t count = 0;
  for (const Fault* fault : in_order) {
    if (count++ == kMaxReported) {
      text += "\nand " + std::to_string(found_.size() - kMaxReported) + " more such pairs of accesses";
      break;
    }
    text += (text.empty() ? "" : "\n") + fault->what + describe(fault->first) +
            (fault->second.who.empty() ? "" : describe(fault->second)) + "\n  " + fault->advice;
  }
  if (!suspects_.empty()) text += suspects_.begin()->second;
  return text;
}

}  // namespace flashbook::sim
