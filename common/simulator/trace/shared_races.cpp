#include "common/simulator/trace/shared_races.h"

#include <algorithm>

namespace flashbook::sim {
SharedRaces::SharedRaces(std::size_t bytes)
    : cells_((bytes + kLine - 1) / kLine * kLine),
      lines_(cells_.size() / kLine),
      reads_(std::size_t(kWarps + kAgentColumns) * cells_.size()) {}

/// Records the line in smaller pieces from now on.
void SharedRaces::divide(std::size_t line, uint32_t shift) {
  const uint32_t parts_shift = lines_[line].shift - shift;
  lines_[line].shift = shift;
  for (std::size_t i = kLine >> shift; i-- > 0;) {  // runs backwards, since parts overwrite the whole
    const std::size_t part = cell_of(line, i), whole = cell_of(line, i >> parts_shift);
    cells_[part] = cells_[whole];
    for (uint64_t left = cells_[part].readers; left; left &= left - 1) {
      const int column = __builtin_ctzll(left);
      reads_of(part).of(column) = reads_of(whole).of(column);
    }
  }
}

template <typename Touch>
void SharedRaces::for_each_cell(std::size_t at, std::size_t bytes, bool writes, const Touch& touch) {
  for (std::size_t end = at + bytes; at < end;) {
    const std::size_t number = at / kLine;
    const std::size_t next = std::min(end, (number + 1) * kLine);
    // The largest pieces that make up this part of the line.
    const auto shift = uint32_t(__builtin_ctzll(at | next | kLine));
    Line& line = lines_[number];
    if (line.block != block_) {
      line = {block_, shift};
      for (std::size_t i = 0; i < kLine >> shift; ++i) cells_[cell_of(number, i)] = Cell{};
    } else if (shift < line.shift) {
      divide(number, shift);
    }
    std::size_t i = at % kLine >> line.shift;
    for (std::size_t byte = at; byte < next; byte += std::size_t(1) << line.shift, ++i) {
      const std::size_t cell = cell_of(number, i);
      touch(cells_[cell], reads_of(cell), byte);
    }
    if (writes && next - at == kLine) line.shift = kLineShift;
    at = next;
  }
}

/// Returns whether a write by `thread` is certainly ordered after all reads of a cell.
bool SharedRaces::follows_readers(const Clocks& clocks, const Cell& cell, const Reads& reads, int thread) {
  for (uint64_t left = cell.readers; left; left &= left - 1) {
    const int column = __builtin_ctzll(left);
    const Read& read = reads.of(column);
    const bool follows = column >= kWarps ? clocks.known(thread, int(read.lanes)) >= read.clock
                                          : clocks.least_known(thread, column) >= read.clock ||
                                                (column == thread / 32 && read.lanes == 1u << thread % 32);
    if (!follows) return false;
  }
  return true;
}

/// Returns the race between a write by `thread` and a read of a cell, if any.
std::optional<Race> SharedRaces::against_readers(const Clocks& clocks, const Cell& cell, const Reads& reads,
                                                 std::size_t at, int thread, const Race::Side& second) {
  for (uint64_t left = cell.readers; left; left &= left - 1) {
    const int column = __builtin_ctzll(left);
    const Read& read = reads.of(column);
    if (column >= kWarps) {
      const auto agent = int(read.lanes);
      if (clocks.known(thread, agent) < read.clock)
        return Race{Race::Rule::async_read, {agent, read.site, Access::load}, second, at};
      continue;
    }
    if (clocks.least_known(thread, column) >= read.clock) continue;
    for (uint32_t lanes = read.lanes; lanes; lanes &= lanes - 1) {
      const int reader = column * 32 + __builtin_ctz(lanes);
      if (clocks.known(thread, reader) < read.clock)
        return Race{Race::Rule::order, {reader, read.site, Access::load}, second, at};
    }
  }
  return std::nullopt;
}

void SharedRaces::note_read(Cell& cell, const Reads& reads, int warp, uint32_t lanes, uint32_t now,
                            Site site) {
  Read& read = reads.of(warp);
  const uint64_t bit = uint64_t(1) << warp;
  if ((cell.readers & bit) && read.clock == now) {
    read.lanes |= lanes;
  } else {
    read = {now, lanes, site};
    cell.readers |= bit;
  }
}

bool SharedRaces::notes_loads(const uint32_t* known, uint32_t now, int warp, uint32_t lanes, std::size_t at,
                              std::size_t bytes, Site site, bool& is_written) {
  // `known` does not contain the writer's own clock; the writer may be a single lane itself.
  const int alone = lanes & (lanes - 1) ? -1 : warp * 32 + __builtin_ctz(lanes);
  bool noted = true, written = true;
  const auto note = [&](Cell& cell, const Reads& reads) {
    written &= cell.written;
    const bool follows = known[cell.writer] >= cell.clock || cell.writer == alone;
    if (!follows || cell.in_flight)
      noted = false;
    else
      note_read(cell, reads, warp, lanes, now, site);
  };
  // Most loads cover exactly one piece.
  if (const Line& line = lines_[at / kLine];
      line.block == block_ && bytes == std::size_t(1) << line.shift && (at & (bytes - 1)) == 0) {
    const std::size_t number = cell_of(at / kLine, at % kLine >> line.shift);
    note(cells_[number], reads_of(number));
  } else {
    for_each_cell(at, bytes, false, [&](Cell& cell, const Reads& reads, std::size_t) { note(cell, reads); });
  }
  is_written = written;
  return noted;
}

/// Records an access by a thread or an agent. (Fields are assigned one by one, which avoids a stall on
/// copying the struct.)
void SharedRaces::note_write(Cell& cell, int who, uint32_t now, Site site) {
  cell.readers = 0;
  cell.clock = now;
  cell.site = site;
  cell.writer = uint16_t(who);
  cell.atomic = cell.in_flight = false;
  cell.written = true;
}

/// Notes a plain access of whole pieces that is ordered after everything before it, as most accesses are. (If
/// it returns false for several pieces, it may have noted some of them.)
[[gnu::always_inline]] inline bool SharedRaces::notes_pieces(const Clocks& clocks, const uint32_t* known,
                                                             uint32_t now, int thread, std::size_t at,
                                                             std::size_t bytes, Access access, Site site,
                                                             bool& is_written) {
  Line& line = lines_[at / kLine];
  if (meets(access) || line.block != block_ || ((at | bytes) & (bytes - 1)) != 0 || bytes > kLine ||
      bytes >> line.shift == 0)
    return false;
  is_written = true;
  std::size_t number = cell_of(at / kLine, at % kLine >> line.shift);
  for (std::size_t left = bytes >> line.shift; left > 0; --left, number += lines_.size()) {
    Cell& cell = cells_[number];
    is_written &= cell.written;
    if (cell.in_flight || (cell.writer != thread && known[cell.writer] < cell.clock)) return false;
    if (access == Access::load)
      note_read(cell, reads_of(number), thread / 32, 1u << thread % 32, now, site);
    else if (follows_readers(clocks, cell, reads_of(number), thread))
      note_write(cell, thread, now, site);
    else
      return false;
  }
  if (access == Access::store && bytes == kLine) line.shift = kLineShift;
  return true;
}

uint32_t SharedRaces::notes_together(const Clocks& clocks, int warp, std::size_t first,
                                     const uint64_t (&offsets)[32], std::size_t bytes, Access access,
                                     Site site) {
  uint32_t others = 0;
  bool is_written;
  const uint32_t* known = clocks.known_to_all(warp * 32, ~0u);
  for (int lane = 0; lane < 32; ++lane)
    if (!known || !notes_pieces(clocks, known, clocks.now(warp * 32 + lane), warp * 32 + lane,
                                first + offsets[lane], bytes, access, site, is_written))
      others |= 1u << lane;
  return others;
}

std::optional<Race> SharedRaces::access(const Clocks& clocks, int thread, std::size_t at, std::size_t bytes,
                                        Access access, Site site, bool& is_written) {
  const uint32_t now = clocks.now(thread);
  const uint32_t* known = clocks.known_of_others(thread);

  if (notes_pieces(clocks, known, now, thread, at, bytes, access, site, is_written)) return std::nullopt;

  std::optional<Race> race;
  const Race::Side self{thread, site, access};
  bool written = true;
  for_each_cell(at, bytes, writes(access), [&](Cell& cell, const Reads& reads, std::size_t byte) {
    written &= cell.written;
    if (cell.in_flight && !race)
      race = Race{Race::Rule::in_flight, {cell.writer, cell.site, Access::store}, self, byte};
    if (cell.clock != 0 && cell.writer != thread && !race && !(cell.atomic && meets(access)) &&
        known[cell.writer] < cell.clock)
      race = Race{cell.writer >= clocks.threads()                      ? Race::Rule::async_write
                  : clocks.would_know(thread, cell.writer, cell.clock) ? Race::Rule::old_value
                                                                       : Race::Rule::order,
                  {cell.writer, cell.site, cell.atomic ? Access::atomic : Access::store},
                  self,
                  byte};
    if (access == Access::volatile_load) return;
    if (access == Access::load) return note_read(cell, reads, thread / 32, 1u << thread % 32, now, site);
    if (cell.readers && !race)
      if (const auto found = against_readers(clocks, cell, reads, byte, thread, self)) race = found;
    note_write(cell, thread, now, site);
    cell.atomic = access == Access::atomic;
  });
  is_written = written;
  if (!race) return std::nullopt;  // avoids a stall on copying an empty optional
  return race;
}

void SharedRaces::set_in_flight(std::size_t at, std::size_t bytes, bool in_flight) {
  if (const Line& line = lines_[at / kLine];
      bytes == kLine && at % kLine == 0 && line.block == block_ && line.shift == kLineShift)
    cells_[cell_of(at / kLine, 0)].in_flight = in_flight;
  else
    for_each_cell(at, bytes, false,
                  [in_flight](Cell& cell, const Reads&, std::size_t) { cell.in_flight = in_flight; });
}

bool SharedRaces::is_written(std::size_t at, std::size_t bytes) const {
  for (std::size_t end = at + bytes; at < end;) {
    const Line& line = lines_[at / kLine];
    if (line.block != block_) return false;
    const std::size_t next = std::min(end, ((at >> line.shift) + 1) << line.shift);
    if (!cells_[cell_of(at / kLine, at % kLine >> line.shift)].written) return false;
    at = next;
  }
  return true;
}

std::optional<Race> SharedRaces::read_for_warp(const Clocks& clocks, int warp, std::size_t at,
                                               std::size_t bytes, Site site) {
  std::optional<Race> race;
  for_each_cell(at, bytes, false, [&](Cell& cell, const Reads&, std::size_t byte) {
    if (cell.clock == 0 || race) return;
    for (int lane = 0; lane < 32; ++lane)
      if (clocks.known(warp * 32 + lane, cell.writer) >= cell.clock) return;
    race = Race{cell.writer < clocks.threads() ? Race::Rule::order : Race::Rule::async_write,
                {cell.writer, cell.site, cell.atomic ? Access::atomic : Access::store},
                {warp * 32, site, Access::load},
                byte};
  });
  return race;
}

std::optional<Race> SharedRaces::async_access(const Clocks& clocks, int thread, int agent, uint32_t ticket,
                                              std::size_t at, std::size_t bytes, Access access, Site site) {
  std::optional<Race> race;
  const Race::Side self{agent, site, access};
  for_each_cell(at, bytes, writes(access), [&](Cell& cell, const Reads& reads, std::size_t byte) {
    if (cell.in_flight && !race)
      race = Race{Race::Rule::in_flight, {cell.writer, cell.site, Access::store}, self, byte};
    if (cell.clock != 0 && cell.writer != agent && !race) {
      const Race::Side other{cell.writer, cell.site, cell.atomic ? Access::atomic : Access::store};
      const bool by_agent = cell.writer >= clocks.threads();
      if (cell.writer != thread && clocks.known(thread, cell.writer) < cell.clock)
        race = Race{by_agent ? Race::Rule::async_write : Race::Rule::order, other, self, byte};
      else if (!by_agent && clocks.known_to_proxy(thread, cell.writer, Proxied::shared) < cell.clock)
        race = Race{Race::Rule::proxy_fence, other, self, byte};
    }
    if (access == Access::load) {
      const int column = kWarps + (agent - clocks.threads()) % kAgentColumns;
      reads.of(column) = {ticket, uint32_t(agent), site};
      cell.readers |= uint64_t(1) << column;
      return;
    }
    if (cell.readers && !race)
      if (const auto found = against_readers(clocks, cell, reads, byte, thread, self)) race = found;
    note_write(cell, agent, ticket, site);
  });
  return race;
}

}  // namespace flashbook::sim
