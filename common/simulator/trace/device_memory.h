/// \file
/// Which device memory a grid touches, and which blocks get into each other's way. Internal to the simulator.
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

/// Two threads of a grid, or agents of theirs, touch the same bytes, at least one writes, and nothing orders
/// the two.
struct BlockConflict {
  struct Side {
    uint64_t block;
    int thread;  ///< or agent
    Site site;
    Access access;
  };
  Race::Rule rule;
  Side first, second;
  std::uintptr_t address;
  // Of Race::Rule::launch_before:
  int launches_before = 1;       ///< how many launches before the second side's the first one's is
  bool ends_before_wait = true;  ///< whether wait_for_launch_before would wait for it
};

/// One for a grid; blocks on all OS threads tell it what they do. Of several readers one is remembered, and
/// what one OS thread notes just when another looks may be missed: some races are not seen, but none is
/// invented.
class DeviceMemory {
 public:
  /// Of the memory from `begin` on, where addresses up to `end` are in use.
  DeviceMemory(std::uintptr_t begin, std::uintptr_t end);

  /// A request touches a sector, by its number.
  void touch(uint64_t sector, Access access);

  /// Whether these bytes, as many as a power of two and aligned, are such that nobody has written them and
  /// somebody's read of each is on record: a further read changes nothing.
  bool is_known_read(std::uintptr_t address, std::size_t bytes) const {
    const std::size_t begin = address - begin_;
    if (begin >= end_ - begin_ || !is_piece_of_sector(begin, bytes)) return false;
    const uint32_t read = bits_of(begin, bytes), written = read << kGranulesOfSector;
    return (__atomic_load_n(&summaries_[begin / kSectorBytes], __ATOMIC_RELAXED) & (read | written)) == read;
  }

  /// Somebody who accesses memory.
  struct Who {
    uint64_t block;
    int thread;
    int agent;          ///< that does it for the thread; the thread itself if there is none
    uint32_t clock;     ///< of that one
    BlockOrder& order;  ///< what the block knows of others
  };
  /// The conflict that an access is in, if any.
  std::optional<BlockConflict> access(const Who& who, std::uintptr_t address, std::size_t bytes,
                                      Access access, Site site);

  /// Whether somebody in the grid has written one of these bytes, or one in the same granule.
  bool is_written(std::uintptr_t address, std::size_t bytes) const;

  /// The block that has written there last; nothing if none has.
  std::optional<uint64_t> last_writer(std::uintptr_t address) const;

  /// Notes for the grids to come what this one has written. (memory.h)
  void note_written() const;

  /// The conflict of an access of the next launch with one of this, if any.
  std::optional<BlockConflict> conflict_after(const Who& who, std::uintptr_t address, std::size_t bytes,
                                              Access access, Site site) const;

  /// Bytes of the different sectors that were read, and written.
  uint64_t read_bytes() const { return read_; }
  uint64_t written_bytes() const { return written_; }

 private:
  static constexpr std::size_t kGranule = 2;  // bytes, until somebody accesses one of them

  static constexpr std::size_t kGranulesOfSector = kSectorBytes / kGranule;

  /// Of a sector there is a summary, which spares most accesses the look at their cells: a bit for each
  /// granule of which all bytes have been read, and then for each of which one has been written.
  static constexpr uint32_t kWritten = ~0u << kGranulesOfSector;
  static bool is_piece_of_sector(std::size_t begin, std::size_t bytes) {
    return bytes <= kSectorBytes && ((bytes | begin) & (bytes - 1)) == 0;
  }
  /// The bits of a piece's granules, as for reads.
  static uint32_t bits_of(std::size_t begin, std::size_t bytes) {
    return ((2u << (bytes - 1) / kGranule) - 1) << begin / kGranule % kGranulesOfSector;
  }

  /// The last writer of a granule and one of its readers, packed; 0 if there was none.
  struct Cell {
    uint64_t writer, reader;
    Site written_at, read_at;
  };
  /// Who did it, and when, in one number that is read and written at once.
  struct Stamp {
    uint32_t block;  ///< below 2^24; the grid's later blocks are not watched
    int thread;      ///< or agent
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

  Reserved<uint32_t> summaries_;  // of sectors
  Reserved<uint16_t> split_;      // of sectors: granules whose bytes are remembered one by one
  Reserved<Cell> cells_;          // of granules, or of their first bytes
  Reserved<Cell> odd_cells_;      // of the second bytes of those
  /// Whose atomic operation the last writer's, which was one too, has followed: they need no order, but who
  /// reads the result must know of both.
  struct Earlier {
    uint64_t writer;
    Site written_at;
  };
  Reserved<Earlier> earlier_;      // of cells
  Reserved<Earlier> odd_earlier_;  // and of odd ones
  bool is_split(std::size_t granule) const {
    return __atomic_load_n(&split_[granule / kGranulesOfSector], __ATOMIC_RELAXED) >>
               granule % kGranulesOfSector &
           1;
  }
  void split(std::size_t granule);
  uint64_t writer_of(std::size_t granule) const;
  static void remember_earlier(Earlier& earlier, uint64_t writer, Site written_at, const Stamp& now);
  std::atomic<uint64_t> read_{0}, written_{0};
};

}  // namespace flashbook::sim
