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
  // These two are for Race::Rule::launch_before:
  int launches_before = 1;       ///< number of launches from the first side to the second
  bool ends_before_wait = true;  ///< whether wait_for_launch_before would wait for the first side
};

/// The accesses of one grid; blocks on all OS threads report to it. Only one reader is recorded, and a check
/// on one OS thread may miss a record that another OS thread makes at the same time. So some races go
/// unnoticed, but no report is false.
class DeviceMemory {
 public:
  /// Covers the memory that starts at `begin`, in which addresses up to `end` are in use.
  DeviceMemory(std::uintptr_t begin, std::uintptr_t end);

  /// Notes that a request accesses a sector, given by its number.
  void touch(uint64_t sector, Access access);

  /// Returns whether these bytes, an aligned power of two, have never been written and each of them has a
  /// recorded reader: another read then changes nothing.
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
    int agent;          ///< agent that acts for the thread; otherwise the thread itself
    uint32_t clock;     ///< clock of the agent or thread
    BlockOrder& order;  ///< the block's knowledge of other blocks
  };
  std::optional<BlockConflict> access(const Who& who, std::uintptr_t address, std::size_t bytes,
                                      Access access, Site site);

  /// Returns whether the grid has written one of these bytes, or a byte in the same granule.
  bool is_written(std::uintptr_t address, std::size_t bytes) const;

  /// Returns the last block that wrote to this address; empty if none has.
  std::optional<uint64_t> last_writer(std::uintptr_t address) const;

  /// Records this grid's writes for later grids (memory.h).
  void note_written() const;

  /// Returns the conflict of an access in the next launch with one in this launch, if any.
  std::optional<BlockConflict> conflict_after(const Who& who, std::uintptr_t address, std::size_t bytes,
                                              Access access, Site site) const;

  /// Returns the total size of the distinct sectors that were read; written_bytes() counts those written.
  uint64_t read_bytes() const { return read_; }
  uint64_t written_bytes() const { return written_; }

 private:
  static constexpr std::size_t kGranule = 2;  // bytes; split if one byte is accessed individually

  static constexpr std::size_t kGranulesPerSector = kSectorBytes / kGranule;

  /// The summary of a sector, which lets most accesses skip its cells: one bit per granule whose bytes have
  /// all been read, then one bit per granule in which a byte has been written.
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
  /// A thread and its clock, packed into one number that is read and written atomically.
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
  /// between them, but a reader of the result must see both operations.
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
