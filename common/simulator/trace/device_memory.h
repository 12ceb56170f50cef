/// \file
/// Which device memory a grid touches, and which blocks get into each other's way. Internal to the simulator.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/simulator/observer.h"
#include "common/simulator/trace/reserved.h"
#include "common/simulator/trace/sites.h"

namespace flashbook::sim {

/// Two blocks of a grid touch the same bytes, at least one writes, and neither uses atomics.
struct BlockConflict {
  struct Side {
    uint64_t block;
    Site site;
    Access access;
  };
  Side first, second;
  std::uintptr_t address;
};

/// One for a grid; blocks on all OS threads tell it what they do. What one OS thread notes just when another
/// looks may be missed.
class DeviceMemory {
 public:
  /// Of the memory from `begin` on, where addresses up to `end` are in use.
  DeviceMemory(std::uintptr_t begin, std::uintptr_t end);

  /// A request touches a sector, by its number.
  void touch(uint64_t sector, Access access);

  /// A block accesses memory; the conflict that it is in, if any.
  std::optional<BlockConflict> access(uint64_t block, std::uintptr_t address, std::size_t bytes,
                                      Access access, Site site);

  /// Bytes of the different sectors that were read, and written.
  uint64_t read_bytes() const { return read_; }
  uint64_t written_bytes() const { return written_; }

 private:
  static constexpr std::size_t kGranule = 2;  // bytes; of single bytes no conflicts are sought

  /// Of a sector: spares most reads the look at their cells.
  struct Summary {
    uint32_t writer;  ///< the only one, kSeveral, or 0
    uint16_t read;    ///< granules that have been read, a bit each
  };
  static constexpr uint32_t kSeveral = ~uint32_t(0);

  /// The last writer and the first reader of a granule; block numbers count from 1.
  struct Cell {
    uint32_t writer;
    Site written_at;
    uint32_t reader;
    Site read_at;
  };

  std::uintptr_t begin_, end_;
  Reserved<uint8_t> sectors_;  // bit 0: read, bit 1: written
  bool is_known_read(uint32_t self, std::size_t first, std::size_t end);
  void summarise(uint32_t self, std::size_t granule, Access access);

  Reserved<Summary> summaries_;  // of sectors
  Reserved<Cell> cells_;
  std::atomic<uint64_t> read_{0}, written_{0};
};

}  // namespace flashbook::sim
