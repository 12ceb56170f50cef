/// \file
/// TMA copies that are not over. Internal to the simulator: kernels call tma.h.
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

/// Loads land on their own, and threads wait for them at mbarriers. Stores belong to the thread that issued
/// them: a wait for reads copies the tile, a wait for the store writes the tensor, and the remaining stores
/// are written when the block ends.
class TensorCopies {
 public:
  TensorCopies(Scheduler& scheduler, Mbarriers& mbarriers) : scheduler_(scheduler), mbarriers_(mbarriers) {}

  void begin_block();
  // For the current thread.
  void load(const char* what, void* tile, const CUtensorMap& map, const void* barrier, const BoxPlace& at,
            Location where);
  /// Stores the box or, if `adds`, adds it to the float32 values there.
  void store(const char* what, const void* tile, const CUtensorMap& map, const BoxPlace& at, bool adds,
             Location where);
  void commit_stores();
  void wait_for_stores(int groups_in_flight);
  void wait_for_reads_of_stores(int groups_in_flight);
  /// Throws Error if the current thread has stores that may still be reading.
  void require_stores_read();

  /// "the tile there was loaded by tma_load at kernel.cuh:12 through a map with the 128-byte swizzle", if a
  /// load brought the tile at this address, the tile is unchanged, and a swizzle over `span` bytes would
  /// misread it; otherwise empty.
  std::string other_swizzle(const unsigned char* address, uint32_t span);

  bool any_load() const { return !loads_.empty(); }
  /// Finishes one load in flight, the oldest or any; false if there is none. An error in it is not the
  /// current thread's, so it ends the block.
  bool land_one(bool any);

  /// The block ends: completes stores that have only read their tiles.
  void end_block();
  /// Errors that only show at the end of the block; empty if there are none.
  std::string end_error() const;

 private:
  struct Load {
    const char* what;  ///< the instruction
    CUtensorMap map;
    unsigned char* tile;
    BoxPlace at;
    std::size_t barrier;  ///< by number
    uint32_t phase;       ///< of the barrier when the load was issued
    int thread;           ///< the one that issued it, by number in the block
    uint32_t ticket;      ///< from the observer
    Location where;
    std::size_t bytes;
  };

  /// A tile that a load through a map has brought or will bring.
  struct Tile {
    const char* what;
    CUtensorMap map;
    const unsigned char* begin;
    BoxPlace at;
    Location where;
  };

  /// A store that may not have happened yet.
  struct Store {
    const char* what;  ///< the instruction
    bool adds;
    CUtensorMap map;
    const unsigned char* tile;
    BoxPlace at;
    int group;  ///< its group, committed or not, by number in the thread
    Location where;
    bool waited = false;                ///< whether the thread has waited for its reads
    std::vector<unsigned char> rows{};  ///< the tile's, once it has been read
    bool landed = false;
    uint32_t read_ticket = 0, write_ticket = 0;  ///< from the observer
  };

  struct OfThread {
    std::vector<Store> stores;
    int groups = 0;  ///< committed ones

    // Identify the thread's reads and writes to an observer.
    const void* reading() const { return &stores; }
    const void* writing() const { return &groups; }
  };

  OfThread& mine() { return threads_[std::size_t(scheduler_.current().number)]; }
  void land(const Load& load);
  void require_free(const Load& load) const;
  std::string issued(const Load& load) const;
  static void read(Store& store);
  static void land(Store& store);
  void land(std::vector<Store*> stores);
  bool is_awaited(const Store& store, int groups_in_flight) {
    return store.group < mine().groups - groups_in_flight;
  }

  Scheduler& scheduler_;
  Mbarriers& mbarriers_;
  std::vector<Load> loads_;  ///< oldest first
  std::vector<Tile> tiles_;  ///< the last one at each address
  std::vector<OfThread> threads_;
};

}  // namespace flashbook::sim
