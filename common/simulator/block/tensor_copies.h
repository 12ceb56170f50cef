/// \file
/// TMA copies that have not completed. Internal to the simulator: kernels include tma.h.
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

/// Loads land asynchronously, and threads wait for them at mbarriers. Stores belong to the thread that issued
/// them: a wait for reads copies the tile, a wait for the store writes the tensor, and the remaining stores
/// are written when the block ends.
class TensorCopies {
 public:
  TensorCopies(Scheduler& scheduler, Mbarriers& mbarriers) : scheduler_(scheduler), mbarriers_(mbarriers) {}

  void begin_block();
  // Applies to the current thread.
  void load(const char* what, void* tile, const CUtensorMap& map, const void* barrier, const BoxPlace& at,
            Location where);
  /// Stores the box or, if `adds`, adds it to the float32 values there.
  void store(const char* what, const void* tile, const CUtensorMap& map, const BoxPlace& at, bool adds,
             Location where);
  void commit_stores();
  void wait_for_stores(int groups_in_flight);
  void wait_for_reads_of_stores(int groups_in_flight);
  /// Throws Error if the current thread has stores that may still be reading their tiles.
  void require_stores_read();

  /// Returns a text such as "the tile there was loaded by tma_load at kernel.cuh:12 through a map with the
  /// 128-byte swizzle" if a load has written the tile at this address, the tile is unchanged, and a swizzle
  /// over `span` bytes would misread it; otherwise an empty string.
  std::string other_swizzle(const unsigned char* address, uint32_t span);

  bool any_load() const { return !loads_.empty(); }
  /// Completes one load in flight, either the oldest or any; returns false if there is none. An error in the
  /// load is not the current thread's fault, so it ends the block.
  bool land_one(bool any);

  /// Completes the remaining stores, whose tiles have already been read, at the end of the block.
  void end_block();
  /// Describes errors that can be detected only at the end of the block; empty if there are none.
  std::string end_error() const;

 private:
  struct Load {
    const char* what;  ///< name of the instruction
    CUtensorMap map;
    unsigned char* tile;
    BoxPlace at;
    std::size_t barrier;  ///< number of the mbarrier
    uint32_t phase;       ///< phase of the barrier when the load was issued
    int thread;           ///< number of the issuing thread in the block
    uint32_t ticket;      ///< the observer's ticket
    Location where;
    std::size_t bytes;
  };

  /// A tile that a load through a map has written or will write.
  struct Tile {
    const char* what;
    CUtensorMap map;
    const unsigned char* begin;
    BoxPlace at;
    Location where;
  };

  /// A store that may not have completed yet.
  struct Store {
    const char* what;  ///< name of the instruction
    bool adds;
    CUtensorMap map;
    const unsigned char* tile;
    BoxPlace at;
    int group;  ///< number of its group within the thread, committed or not
    Location where;
    bool waited = false;                ///< whether the thread has waited for the store to read its tile
    std::vector<unsigned char> rows{};  ///< contents of the tile, once it has been read
    bool landed = false;
    uint32_t read_ticket = 0, write_ticket = 0;  ///< the observer's tickets
  };

  struct OfThread {
    std::vector<Store> stores;
    int groups = 0;  ///< number of committed groups

    // The addresses that identify the thread's reads and writes to an observer.
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
  std::vector<Load> loads_;  ///< loads in flight, oldest first
  std::vector<Tile> tiles_;  ///< last tile at each address
  std::vector<OfThread> threads_;
};

}  // namespace flashbook::sim
