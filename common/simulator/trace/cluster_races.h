/// \file
/// Data races between the blocks of a cluster, in the shared memory of one of them. Internal to the
/// simulator.
///
/// What a block does in its own memory shared_races.h compares. This looks at pairs of accesses of which
/// another block has made one, and asks the knowledge of blocks (block_order.h) whether the second came after
/// the first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/simulator/observer.h"
#include "common/simulator/trace/block_order.h"
#include "common/simulator/trace/device_memory.h"
#include "common/simulator/trace/sites.h"

namespace flashbook::sim {

/// The accesses to one block's shared memory.
class ClusterRaces {
 public:
  void begin() { words_.clear(); }

  /// An access to the bytes from `at` on. `by_peer`: another block has made it, or had it made on a ticket of
  /// this one. The conflict that it is in, if any.
  std::optional<BlockConflict> access(const DeviceMemory::Who& who, std::size_t at, std::size_t bytes,
                                      Access access, Site site, bool by_peer);

  /// Calls `look` for those of other blocks, one for each of their threads: the last.
  void for_each_of_peers(const std::function<void(const BlockConflict::Side&, uint32_t clock)>& look) const;

 private:
  static constexpr std::size_t kWord = 4;

  struct Mark {
    uint64_t block;
    int who;  ///< a thread, or an agent
    uint32_t clock;
    Site site;
    Access access;
    uint8_t bytes;  ///< of the word, a bit each
    bool by_peer;
  };

  static bool knows(const DeviceMemory::Who& who, const Mark& mark) {
    return who.order.knows(who.thread, mark.block, mark.who, mark.clock);
  }

  std::unordered_map<std::size_t, std::vector<Mark>> words_;  ///< what nobody has overwritten since
};

}  // namespace flashbook::sim
