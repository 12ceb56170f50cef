/// \file
/// Tracks a grid's accesses to device memory and finds conflicts between its blocks. Internal to the
/// simulator.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/simulator/observer.h"
#include "common/simulator/trace/block_order.h"
#include "common/simulator/trace/counts.h"
#include "common/simulator/trace/reserved.h"
#include "common/simulator/trace/shared_races.h"
#include "common/simulator/trace/sites.h"

namespace flashbook::sim {

/// A conflict: two threads of a grid, or their agents, access the same bytes, at least one of them writes,
/// and the accesses are not ordered.
struct BlockConflict {
  struct Side {
    uint64_t block;
    int thread;  ///< number of the thread or agent
    Site site;
    Access access;
  };
  Race::Rule rule;
  Side first, second;
  std::uintptr_t address;
  // For Race::Rule::launch_before:
  int launches_before = 1;       ///< number of launches from the first side to the second
  bool ends_before_wait = true;  ///< whether wait_for_launch_before would wait for the first side
};

/// The accesses of one grid; blocks on all OS threads report to it. Only one reader is remembered, and a
/// record that one OS thread makes just as another checks may be missed. So some races go unnoticed, but no
/// report is false.
class DeviceMemory {
 public:
  /// Covers the memory that starts at `begin`, in which addresses up to `end` are in use.
  DeviceMemory(std::uintptr_t begin, std::uintptr_t end);

  /// Notes that a request accesses a sector, given by its number.
  void touch(uint64_t sector, Access access);

  /// Returns whether these bytes, an aligned power of two, have never been written and each of them has a
  /// reader on record: then another read changes nothing.
  bool is_known_read(std::uintptr_t address, std::size_t bytes) const {
    const std::size_t begin = address - begin_;
    if (begin >= end_ - begin_ || !is_piece_of_sector(begin, bytes)) return false;
    const uint32_t read = bits_of(begin, bytes), written = read << kGranulesPerSector;
    return (__atomic_load_n(&summaries_[begin / kSectorBytes], __ATOMIC_RELAXED) & (read | written)) == read;
  }

  /// The origin of an access.
  struct Who {
    uint64_t block;
    int thread;
    int agent;          ///< agent that acts for the thread; the thread itself if there is none
    uint32_t clock;     ///< clock of the agent or thread
    BlockOrder& order;  ///< what the block knows of others
  };
  std::optional<BlockConflict> access(const Who& who, std::uintptr_t address, std::size_t bytes,
                                      Access access, Site site);

  /// Returns whether the grid has written one of these bytes, or a byte in the same granule.
  bool is_written(std::uintptr_t address, std::size_t bytes) const;

  /// Returns the last block that wrote there; empty if none has.
  std::optional<uint64_t> last_writer(std::uintptr_t address) const;

  /// Records this grid's writes for later grids (memory.h).
  void note_written() const;

  /// Returns the conflict of an access in the next launch with one in this launch, if any.
  std::optional<BlockConflict> conflict_after(const Who& who, std::uintptr_t address, std::size_t bytes,
                                              Access access, Site site) const;

  /// Returns the total size of the distinct sectors that were read, and of those that were written.
  uint64_t read_bytes() const { return read_; }
  uint64_t written_bytes() const { return written_; }

 private:
  static constexpr std::size_t kGranule = 2;  // bytes; split if one byte is accessed on its own

  static constexpr std::size_t kGranulesPerSector = kSectorBytes / kGranule;

  /// The summary of a sector, with which most accesses can skip its cells: one bit per granule whose bytes
  /// have all been read, then one bit per granule in which a byte has been written.
  static constexpr uint32_t kWritten = ~0u << kGranulesPerSector;
  static bool is_piece_of_sector(std::size_t begin, std::size_t bytes) {
    return bytes <= kSectorBytes && ((bytes | begin) & (bytes - 1)) == 0;
  }
  /// Returns the bits of an access's granules in the half of the summary that counts reads.
  static uint32_t bits_of(std::size_t begin, std::size_t bytes) {
    return ((2u << (bytes - 1) / kGranule) - 1) << begin / kGranule % kGranulesPerSector;
  }

  /// The last writer of a granule and one of its readers, packed; 0 if there was none.
  struct Cell {
    uint64_t writer, reader;
    Site written_at, read_at;
  };
  /// The thread and its clock, packed into one number that is read and written atomically.
  struct Stamp {
    uint32_t block;  ///< below 2^24; later blocks of the grid are not watched
    int thread;      ///< number of the thread or agent
    uint32_t clock;
    bool atomic;

    uint64_t packed() const {
      return uint64_t(block + 1) << 40 | uint64_t(thread) << 29 | uint64_t(clock & kMaxClock) << 1 |
             uint64_t(atomic);
    }
    static Stamp unpacked(uint64_t stamp) {
      return {uint32_t(stamp >> 40) - 1, int(stamp >> 29 & 0x7ff), uint32_t(stamp >> 1) & kMaxClock,
              (stamp & 1) != 0};
    }
    static constexpr uint32_t kMaxClock = (1u << 28) - 1;
  };

  std::uintptr_t begin_, end_;
  Reserved<uint8_t> sectors_;  // bit 0: read, bit 1: written
  void summarise(std::size_t granule, Access access);
  bool notes_first(const Who& who, std::size_t begin, std::size_t bytes, Access access, Site site);

  Reserved<uint32_t> summaries_;  // one per sector
  Reserved<uint16_t> split_;      // per sector: the granules whose bytes are recorded individually
  Reserved<Cell> cells_;          // per granule, or for its first byte
  Reserved<Cell> odd_cells_;      // for the second byte of such granules
  /// The atomic operation before that of the last writer, which was also atomic. The two need no order
  /// between them, but a reader of the result must see both.
  struct Earlier {
    uint64_t writer;
    Site written_at;
  };
  Reserved<Earlier> earlier_;      // one per cell
  Reserved<Earlier> odd_earlier_;  // one per odd cell
  bool is_split(std::size_t granule) const {
    return __atomic_load_n(&split_[granule / kGranulesPerSector], __ATOMIC_RELAXED) >>
               granule % kGranulesPerSector &
           1;
  }
  void split(std::size_t granule);
  uint64_t writer_of(std::size_t granule) const;
  static void remember_earlier(Earlier& earlier, uint64_t writer, Site written_at, const Stamp& now);
  std::atomic<uint64_t> read_{0}, written_{0};
};

}  // namespace flashbook::sim
