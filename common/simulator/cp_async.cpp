#include "common/simulator/cp_async.h"

#include <cstring>
#include <string>

#include "common/simulator/addresses.h"
#include "common/simulator/scheduler.h"

namespace flashbook::sim {

void Worker::land(const PendingCopy& copy) {
  if (copy.valid > 0) std::memcpy(copy.shared, copy.global, copy.valid);
  std::memset(copy.shared + copy.valid, 0, copy.bytes - copy.valid);
  if (observer_)
    observer_->lands(number_of(*current_), {Access::store, copy.shared, copy.bytes, copy.what, copy.where});
}

void Worker::copy_async(const PendingCopy& copy) {
  if (observer_) {
    const int self = number_of(*current_);
    observer_->touches(self, {Access::load, copy.global, copy.valid, copy.what, copy.where});
    observer_->touches(self, {Access::store, copy.shared, copy.bytes, copy.what, copy.where});
  }
  const Async when = options().async;
  if (when == Async::eager || (when == Async::random && random_.below(2) == 0)) {
    land(copy);
    return;
  }
  std::memset(copy.shared, 0xff, copy.bytes);  // on its way: whoever reads it now finds NaN
  current_->copies.push_back(copy);
  current_->copies.back().group = current_->copy_groups;
}

void Worker::commit_copies() {
  ++current_->copy_groups;
  if (options().async == Async::random)
    std::erase_if(current_->copies, [this](const PendingCopy& copy) {
      const bool lands_now = random_.below(4) == 0;
      if (lands_now) land(copy);
      return lands_now;
    });
}

void Worker::wait_for_copies(int groups_in_flight) {
  const int first_in_flight = current_->copy_groups - groups_in_flight;
  std::erase_if(current_->copies, [&](const PendingCopy& copy) {
    const bool lands_now = copy.group < first_in_flight;
    if (lands_now) land(copy);
    return lands_now;
  });
}

void Worker::wait_for_all_copies() {
  for (const PendingCopy& copy : current_->copies) land(copy);
  current_->copies.clear();
}

void cp_async(const char* what, void* shared, const void* global, int bytes, int valid, Location where) {
  if (valid < 0 || valid > bytes)
    throw Error(describe_call(what, where) + " copies " + std::to_string(valid) + " valid bytes: give 0 to " +
                std::to_string(bytes));
  const auto size = std::size_t(bytes), read = std::size_t(valid);
  require_shared(what, shared, size, size, where);
  require_global(what, global, read, size, where);
  running_worker(what, where)
      .copy_async({static_cast<unsigned char*>(shared), global, size, read, what, where, 0});
}

void cp_async_commit(Location where) { running_worker("cp_async_commit", where).commit_copies(); }

void cp_async_wait(int groups_in_flight, Location where) {
  running_worker("cp_async_wait", where).wait_for_copies(groups_in_flight);
}

void cp_async_wait_all(Location where) { running_worker("cp_async_wait_all", where).wait_for_all_copies(); }

}  // namespace flashbook::sim
