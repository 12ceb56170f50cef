/// \file
/// The copies by TMA that are not over. Internal to the simulator: what kernels call is in tma.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simulator/block/box.h"
#include "common/simulator/block/mbarriers.h"
#include "common/simulator/block/scheduler.h"
#include "common/simulator/tensor_map.h"

namespace flashbook::sim {

/// Loads land by themselves, and threads wait for them at mbarriers. Stores belong to the thread that issued
/// them, and its wait lands them.
class TensorCopies {
 public:
  TensorCopies(Scheduler& scheduler, Mbarriers& mbarriers) : scheduler_(scheduler), mbarriers_(mbarriers) {}

  void begin_block();
  // Of the current thread.
  void load(void* tile, const CUtensorMap& map, const void* barrier, const int* at, int rank, Location where);
  void store(const void* tile, const CUtensorMap& map, const int* at, int rank, Location where);
  void commit_stores();
  void wait_for_stores(int groups_in_flight);
  /// Throws Error if it has stores that it has not waited for.
  void require_stores_waited_for();

  bool any_load() const { return !loads_.empty(); }
  /// Finishes one load that is on its way, the oldest or any; false if there is none. Whatever is wrong with
  /// it is not the fault of the thread that runs, so the block ends with that error.
  bool land_one(bool any);

  /// What a block did wrong that only its end shows; empty if nothing.
  std::string end_error() const;

 private:
  /// A load that has not landed.
  struct Load {
    CUtensorMap map;
    unsigned char* tile;
    BoxPlace at;
    std::size_t barrier;  ///< by number
    uint32_t phase;       ///< of the barrier when the load was issued
    int thread;           ///< that issued it, by number in the block
    uint32_t ticket;      ///< of the observer
    Location where;
  };

  /// A store that its thread has not waited for.
  struct Store {
    CUtensorMap map;
    const unsigned char* tile;
    BoxPlace at;
    int group;            ///< the number of the thread's group that it belongs to, committed or not
    bool landed = false;  ///< early, since Options::async says so
    uint32_t ticket = 0;  ///< of the observer
    Location where;
  };

  struct OfThread {
    std::vector<Store> stores;
    int groups = 0;  ///< that it has committed
  };

  OfThread& mine() { return threads_[std::size_t(scheduler_.current().number)]; }
  void land(const Load& load);
  static void land(Store& store);

  Scheduler& scheduler_;
  Mbarriers& mbarriers_;
  std::vector<Load> loads_;  ///< the oldest first
  std::vector<OfThread> threads_;
};

}  // namespace flashbook::sim
