#include "common/simulator/block/async_copies.h"

#include <cstring>
#include <string>
#include <utility>

#include "common/simulator/block/worker.h"
#include "common/simulator/cp_async.h"
#include "common/simulator/describe.h"
#include "common/simulator/in_flight.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {

void AsyncCopies::begin_block() {
  threads_.resize(scheduler_.threads().size());
  for (OfThread& thread : threads_) {
    thread.copies.clear();
    thread.groups = 0;
    thread.waited = {};
  }
  tracked_.clear();
}

void AsyncCopies::land(const PendingCopy& copy, int thread) const {
  if (copy.valid > 0) std::memcpy(copy.shared, copy.global, copy.valid);
  std::memset(copy.shared + copy.valid, 0, copy.bytes - copy.valid);
  if (Observer* observer = scheduler_.observer())
    observer->lands(thread, {Access::store, copy.shared, copy.bytes, copy.what, copy.where});
}

void AsyncCopies::copy(const PendingCopy& copy) {
  if (EventLog* log = scheduler_.log())
    log->add(scheduler_.current().number,
             {EventKind::does, copy.what, copy.where, "", std::to_string(copy.bytes) + " bytes per lane"});
  if (Observer* observer = scheduler_.observer()) {
    const int self = scheduler_.current().number;
    observer->touches(self, {Access::load, copy.global, copy.valid, copy.what, copy.where});
    observer->flies(self, {Access::store, copy.shared, copy.bytes, copy.what, copy.where});
  }
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && scheduler_.random().below(2) == 0)) {
    land(copy);
    return;
  }
  std::memset(copy.shared, 0xff, copy.bytes);  // the copy is in flight: reading its target now yields NaN
  mine().copies.push_back(copy);
  mine().copies.back().group = mine().groups;
}

void AsyncCopies::commit() {
  ++mine().groups;
  if (options().async == Async::random)
    std::erase_if(mine().copies, [this](const PendingCopy& copy) {
      const bool lands_now = scheduler_.random().below(4) == 0;
      if (lands_now) land(copy);
      return lands_now;
    });
}

void AsyncCopies::wait(int groups_in_flight, Location where) {
  mine().waited = where;
  mine().let_fly = groups_in_flight;
  const int first_in_flight = mine().groups - groups_in_flight;
  std::erase_if(mine().copies, [&](const PendingCopy& copy) {
    const bool lands_now = copy.group < first_in_flight;
    if (lands_now) land(copy);
    return lands_now;
  });
}

void AsyncCopies::wait_for_all(Location where) {
  mine().waited = where;
  mine().let_fly = 0;
  for (const PendingCopy& copy : mine().copies) land(copy);
  mine().copies.clear();
}

void AsyncCopies::arrive(const void* barrier, Location where) {
  constexpr const char* kWhat = "cp_async_arrive";
  const std::size_t number = mbarriers_.number_at(kWhat, barrier, where);
  tracked_.push_back({number, {0, scheduler_.current().number, kWhat, where}, std::move(mine().copies)});
  mine().copies.clear();
  if (tracked_.back().copies.empty()) {  // they have all landed
    const Arrival arrival = tracked_.back().arrival;
    tracked_.pop_back();
    mbarriers_.arrive_for(number, arrival);
  }
}

bool AsyncCopies::land_one(bool any) {
  if (tracked_.empty()) return false;
  const auto which = tracked_.begin() + (any ? scheduler_.random().below(int(tracked_.size())) : 0);
  const Tracked tracked = std::move(*which);
  tracked_.erase(which);
  for (const PendingCopy& copy : tracked.copies) land(copy, tracked.arrival.thread);
  try {
    mbarriers_.arrive_for(tracked.barrier, tracked.arrival);
  } catch (const Error& broken_rule) {
    scheduler_.fail(broken_rule.what());
  }
  return true;
}

bool AsyncCopies::may_be_in_flight() { return options().async != Async::lazy || !mine().copies.empty(); }

std::string AsyncCopies::describe_last_wait(int thread) const {
  const OfThread& of = threads_[std::size_t(thread)];
  if (of.waited.line == 0) return "";
  return describe_call(("cp_async_wait<" + std::to_string(of.let_fly) + ">").c_str(), of.waited);
}

void cp_async(const char* what, void* shared, const void* global, int bytes, int valid, Location where) {
  if (valid < 0 || valid > bytes)
    throw Error(describe_call(what, where) + " copies " + std::to_string(valid) + " valid bytes: give 0 to " +
                std::to_string(bytes));
  const auto size = std::size_t(bytes), read = std::size_t(valid);
  require_shared(what, shared, size, size, where);
  require_global(what, global, read, size, where);
  running_worker(what, where)
      .copies.copy({static_cast<unsigned char*>(shared), global, size, read, what, where, 0});
}

void cp_async_commit(Location where) {
  Worker& worker = running_worker("cp_async_commit", where);
  worker.tell("cp_async_commit", where);
  worker.copies.commit();
}

void cp_async_wait(int groups_in_flight, Location where) {
  Worker& worker = running_worker("cp_async_wait", where);
  worker.tell("cp_async_wait", where, groups_in_flight);
  worker.copies.wait(groups_in_flight, where);
}

void cp_async_arrive(void* barrier, Location where) {
  Worker& worker = running_worker("cp_async_arrive", where);
  worker.tell("cp_async_arrive", where);
  worker.copies.arrive(barrier, where);
}

bool may_have_copies_in_flight() {
  return running_worker("may_have_copies_in_flight", {}).copies.may_be_in_flight();
}

void cp_async_wait_all(Location where) {
  Worker& worker = running_worker("cp_async_wait_all", where);
  worker.tell("cp_async_wait_all", where);
  worker.copies.wait_for_all(where);
}

}  // namespace flashbook::sim
