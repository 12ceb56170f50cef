/// \file
/// cp.async copies that have not landed. Internal to the simulator: kernels include cp_async.h.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "common/simulator/block/mbarriers.h"
#include "common/simulator/block/scheduler.h"

namespace flashbook::sim {

struct PendingCopy {
  unsigned char* shared;
  const void* global;
  std::size_t bytes;  ///< number of bytes written
  std::size_t valid;  ///< number of bytes read; the rest are zero-filled
  const char* what;
  Location where;
  int group;  ///< number of the copy's group within its thread, committed or not
};

/// The copies that each thread has issued but not yet waited for. They land during the wait itself, so no
/// thread ever has to wait for another; or, if an mbarrier tracks them, like TMA's loads.
class AsyncCopies {
 public:
  AsyncCopies(Scheduler& scheduler, Mbarriers& mbarriers) : scheduler_(scheduler), mbarriers_(mbarriers) {}

  void begin_block();
  // Applies to the current thread.
  void copy(const PendingCopy& copy);
  void commit();
  void wait(int groups_in_flight, Location where);
  void wait_for_all(Location where);
  /// From now on, the mbarrier tracks the current thread's copies.
  void arrive(const void* barrier, Location where);
  bool may_be_in_flight();

  bool any_tracked() const { return !tracked_.empty(); }
  /// Lands copies that an mbarrier tracks, the oldest or any, and arrives; returns false if there are none.
  bool land_one(bool any);

  /// Describes a thread's last wait, e.g. "cp_async_wait<1> at kernel.cuh:12"; empty if it has never waited.
  std::string describe_last_wait(int thread) const;

 private:
  struct OfThread {
    std::vector<PendingCopy> copies;
    int groups = 0;  ///< number of committed groups
    // The thread's last wait.
    Location waited;
    int let_fly = 0;  ///< number of groups that the wait left in flight
  };

  /// Copies that an mbarrier tracks, and the arrival that follows them.
  struct Tracked {
    std::size_t barrier;  ///< number of the mbarrier
    Arrival arrival;
    std::vector<PendingCopy> copies;
  };

  OfThread& mine() { return threads_[std::size_t(scheduler_.current().number)]; }
  void land(const PendingCopy& copy, int thread) const;
  void land(const PendingCopy& copy) const { land(copy, scheduler_.current().number); }

  Scheduler& scheduler_;
  Mbarriers& mbarriers_;
  std::vector<OfThread> threads_;
  std::vector<Tracked> tracked_;
};

}  // namespace flashbook::sim
