/// \file
/// Data races in shared memory. Internal to the simulator.
#pragma once
#include <cstdint>
#include <optional>

#include "common/simulator/observer.h"
#include "common/simulator/trace/clocks.h"
#include "common/simulator/trace/reserved.h"
#include "common/simulator/trace/sites.h"

namespace flashbook::sim {

/// Two accesses that nothing orders.
struct Race {
  enum class Rule {
    order,          ///< no barrier between them
    proxy_fence,    ///< a plain store, then the async proxy, without fence.proxy.async
    async_read,     ///< the async proxy may still be reading what a plain store overwrites
    async_write,    ///< the async proxy may still be writing
    in_flight,      ///< a cp.async may still be writing
    launch_before,  ///< an earlier launch may still be running
    old_value       ///< a flag was set to the value that it had: whoever waits for it may not have waited
  };
  struct Side {
    int who;  ///< a thread; an agent of the async proxy if not less than the number of threads
    Site site;
    Access access;
  };
  Rule rule;
  Side first, second;
  std::size_t at;  ///< byte
};

/// Remembers of each byte who wrote it last and who has read it since, and asks the clocks whether the next
/// one knows of it.
///
/// Of the readers in a warp all are kept that read at the same count of their clocks. So some races are not
/// seen, but none is invented. As long as a line of 16 bytes is only touched in aligned pieces of 2, 4, 8 or
/// 16 bytes, as by vectors, copies and matrix instructions, each piece is remembered as one.
class SharedRaces {
 public:
  /// Of so many bytes.
  explicit SharedRaces(std::size_t bytes);

  std::size_t bytes() const { return cells_.size(); }

  /// A new block: everything is forgotten.
  void begin() { ++block_; }

  /// `thread` does this to the bytes from `at` on, and knows what `clocks` say. The race that it is in, if
  /// any.
  std::optional<Race> access(const Clocks& clocks, int thread, std::size_t at, std::size_t bytes,
                             Access access, Site site) {
    bool is_written;
    return this->access(clocks, thread, at, bytes, access, site, is_written);
  }
  /// `is_written`: whether all these bytes had been written in this block before.
  std::optional<Race> access(const Clocks& clocks, int thread, std::size_t at, std::size_t bytes,
                             Access access, Site site, bool& is_written);

  /// Notes that lanes of a warp load these bytes, who all know `known` of others and whose clocks are at
  /// `now`, unless that may be a race. `is_written` as above.
  bool notes_loads(const uint32_t* known, uint32_t now, int warp, uint32_t lanes, std::size_t at,
                   std::size_t bytes, Site site, bool& is_written);

  /// Notes that each lane of a warp makes a plain access of so many bytes from first + offsets[lane] on, as
  /// far as that is surely no race. Returns the lanes for which it is not noted.
  uint32_t notes_together(const Clocks& clocks, int warp, std::size_t first, const uint64_t (&offsets)[32],
                          std::size_t bytes, Access access, Site site);

  /// A cp.async brings these bytes from now on, or has brought them: until then nobody may touch them.
  void set_in_flight(std::size_t at, std::size_t bytes, bool in_flight);

  /// Whether all these bytes have been written in this block.
  bool is_written(std::size_t at, std::size_t bytes) const;

  /// The race of a read that the async proxy makes for a warp, if none of its lanes knows who has written
  /// there.
  std::optional<Race> read_for_warp(const Clocks& clocks, int warp, std::size_t at, std::size_t bytes,
                                    Site site);

  /// The async proxy does it for `thread`, on a ticket of an agent.
  std::optional<Race> async_access(const Clocks& clocks, int thread, int agent, uint32_t ticket,
                                   std::size_t at, std::size_t bytes, Access access, Site site);

 private:
  static constexpr std::size_t kLine = 16;  ///< bytes
  static constexpr uint32_t kLineShift = 4;
  static constexpr int kWarps = 32;            ///< of the largest block
  static constexpr int kColumnsOfAgents = 32;  ///< agents that share one forget each other's reads

  /// What is known of a piece.
  struct Cell {
    uint64_t readers;  ///< columns that have read since the last write
    uint32_t clock;    ///< of the last write; 0 if there was none
    Site site;         ///< of the last write
    uint16_t writer;   ///< a thread or an agent
    bool atomic;       ///< whether it was one
    bool written;      ///< whether there was any
    bool in_flight;    ///< whether the last write was a cp.async that has not landed
  };
  /// What a warp or an agent has read.
  struct Read {
    uint32_t clock;  ///< of the lanes, or the agent's ticket
    uint32_t lanes;  ///< of an agent's read, the agent
    Site site;
  };

  /// The reads of a cell, by column.
  struct Reads {
    Read* first;
    std::size_t stride;
    Read& of(int column) const { return first[std::size_t(column) * stride]; }
  };
  /// How 16 bytes are remembered: in pieces of 2 to the power of `shift` bytes, which have the first of the
  /// line's cells. (The first cells of all lines lie side by side, then the second ones, and so on: most
  /// lines have few pieces.)
  struct Line {
    uint32_t block;  ///< in which all this happened
    uint32_t shift;
  };

  std::size_t cell_of(std::size_t line, std::size_t piece) const { return piece * lines_.size() + line; }
  Reads reads_of(std::size_t cell) const { return {&reads_[cell], cells_.size()}; }
  void divide(std::size_t line, uint32_t shift);
  static void note_write(Cell& cell, int who, uint32_t now, Site site);
  static void note_read(Cell& cell, const Reads& reads, int warp, uint32_t lanes, uint32_t now, Site site);
  bool notes_pieces(const Clocks& clocks, const uint32_t* known, uint32_t now, int thread, std::size_t at,
                    std::size_t bytes, Access access, Site site, bool& is_written);
  /// Calls `touch(cell, reads, at)` for what these bytes are remembered in. `writes`: whether that
  /// leaves the same behind in all of them.
  template <typename Touch>
  void for_each_cell(std::size_t at, std::size_t bytes, bool writes, const Touch& touch);
  static bool follows_readers(const Clocks& clocks, const Cell& cell, const Reads& reads, int thread);
  static std::optional<Race> against_readers(const Clocks& clocks, const Cell& cell, const Reads& reads,
                                             std::size_t at, int thread, const Race::Side& second);

  uint32_t block_ = 0;
  Reserved<Cell> cells_;
  Reserved<Line> lines_;
  Reserved<Read> reads_;  // [kWarps + kColumnsOfAgents][cells]
};

}  // namespace flashbook::sim
