/// \file
/// Finds data races in shared memory. Internal to the simulator.
#pragma once
#include <cstdint>
#include <optional>

#include "common/simulator/observer.h"
#include "common/simulator/trace/clocks.h"
#include "common/simulator/trace/reserved.h"
#include "common/simulator/trace/sites.h"

namespace flashbook::sim {

/// A race, which consists of two accesses that are not ordered.
struct Race {
  enum class Rule {
    order,          ///< the two accesses have no barrier between them
    proxy_fence,    ///< a plain store precedes an access by the async proxy, without fence.proxy.async in
                    ///< between
    async_read,     ///< the async proxy may still be reading the data that a plain store overwrites
    async_write,    ///< the async proxy may still be writing
    in_flight,      ///< a cp.async may still be writing
    launch_before,  ///< an earlier launch may still be running
    old_value       ///< a flag was set to the value it already had, so a wait may have ended too early
  };
  struct Side {
    int who;  ///< a thread, or an agent of the async proxy if not below the number of threads
    Site site;
    Access access;
  };
  Rule rule;
  Side first, second;
  std::size_t at;  ///< offset in bytes
};

/// Keeps the last writer of each byte and its readers since then, and uses the clocks to determine whether
/// the next access is ordered after them.
///
/// All lanes of a warp that read with equal clocks are recorded as readers. So some races go unnoticed, but
/// no report is false. As long as a 16-byte line is accessed only in aligned pieces of 2, 4, 8 or 16 bytes,
/// as vectors, copies and matrix instructions do, each piece has one record.
class SharedRaces {
 public:
  /// Covers shared memory of this size.
  explicit SharedRaces(std::size_t bytes);

  std::size_t bytes() const { return cells_.size(); }

  /// Starts a new block and discards all records.
  void begin() { ++block_; }

  /// Notes that `thread`, whose knowledge is in `clocks`, accesses the bytes starting at `at`. Returns the
  /// race, if any.
  std::optional<Race> access(const Clocks& clocks, int thread, std::size_t at, std::size_t bytes,
                             Access access, Site site) {
    bool is_written;
    return this->access(clocks, thread, at, bytes, access, site, is_written);
  }
  /// `is_written` receives whether all these bytes had already been written in this block.
  std::optional<Race> access(const Clocks& clocks, int thread, std::size_t at, std::size_t bytes,
                             Access access, Site site, bool& is_written);

  /// Notes that lanes of a warp, all with clocks at `now` and the same knowledge `known` of other threads,
  /// load these bytes, unless that may be a race. `is_written` as above.
  bool notes_loads(const uint32_t* known, uint32_t now, int warp, uint32_t lanes, std::size_t at,
                   std::size_t bytes, Site site, bool& is_written);

  /// Notes that each lane of a warp makes a plain access of this many bytes at first + offsets[lane], if that
  /// is certainly no race. Returns the lanes whose accesses were not noted.
  uint32_t notes_together(const Clocks& clocks, int warp, std::size_t first, const uint64_t (&offsets)[32],
                          std::size_t bytes, Access access, Site site);

  /// Notes that a cp.async to these bytes is now in flight, or has landed. In between they must not be
  /// accessed.
  void set_in_flight(std::size_t at, std::size_t bytes, bool in_flight);

  /// Returns whether all these bytes have been written in this block.
  bool is_written(std::size_t at, std::size_t bytes) const;

  /// Returns the race of a read by the async proxy for a warp, if no lane of the warp has seen the last write
  /// there.
  std::optional<Race> read_for_warp(const Clocks& clocks, int warp, std::size_t at, std::size_t bytes,
                                    Site site);

  /// Notes that the async proxy makes this access for `thread`, on an agent's ticket.
  std::optional<Race> async_access(const Clocks& clocks, int thread, int agent, uint32_t ticket,
                                   std::size_t at, std::size_t bytes, Access access, Site site);

 private:
  static constexpr std::size_t kLine = 16;  ///< size in bytes
  static constexpr uint32_t kLineShift = 4;
  static constexpr int kWarps = 32;         ///< number of warps in the largest block
  static constexpr int kAgentColumns = 32;  ///< agents that share a column overwrite each other's reads

  /// The record of a piece.
  struct Cell {
    uint64_t readers;  ///< columns that have read since the last write
    uint32_t clock;    ///< clock of the last write; 0 if there was none
    Site site;         ///< source location of the last write
    uint16_t writer;   ///< thread or agent of the last write
    bool atomic;       ///< whether the last write was atomic
    bool written;      ///< whether the piece has been written
    bool in_flight;    ///< whether the last write was a cp.async that has not landed
  };
  /// The last read by a warp or an agent.
  struct Read {
    uint32_t clock;  ///< clock of the lanes, or ticket of the agent
    uint32_t lanes;  ///< mask of the lanes; for an agent, its number
    Site site;
  };

  /// The reads of a cell, by column.
  struct Reads {
    Read* first;
    std::size_t stride;
    Read& of(int column) const { return first[std::size_t(column) * stride]; }
  };
  /// A 16-byte line is recorded in pieces of 2^`shift` bytes, one per cell, starting at the line's first
  /// cell. (Cells are stored by their position in the line: the first cells of all lines, then the
  /// second ones, and so on, since most lines have few pieces.)
  struct Line {
    uint32_t block;  ///< block to which these records belong
    uint32_t shift;
  };

  std::size_t cell_of(std::size_t line, std::size_t piece) const { return piece * lines_.size() + line; }
  Reads reads_of(std::size_t cell) const { return {&reads_[cell], cells_.size()}; }
  void divide(std::size_t line, uint32_t shift);
  static void note_write(Cell& cell, int who, uint32_t now, Site site);
  static void note_read(Cell& cell, const Reads& reads, int warp, uint32_t lanes, uint32_t now, Site site);
  bool notes_pieces(const Clocks& clocks, const uint32_t* known, uint32_t now, int thread, std::size_t at,
                    std::size_t bytes, Access access, Site site, bool& is_written);
  /// Calls `touch(cell, reads, at)` for every record of these bytes. `writes` means that all records are in
  /// the same state afterwards.
  template <typename Touch>
  void for_each_cell(std::size_t at, std::size_t bytes, bool writes, const Touch& touch);
  static bool follows_readers(const Clocks& clocks, const Cell& cell, const Reads& reads, int thread);
  static std::optional<Race> against_readers(const Clocks& clocks, const Cell& cell, const Reads& reads,
                                             std::size_t at, int thread, const Race::Side& second);

  uint32_t block_ = 0;
  Reserved<Cell> cells_;
  Reserved<Line> lines_;
  Reserved<Read> reads_;  // [kWarps + kAgentColumns][cells]
};

}  // namespace flashbook::sim
