#include "common/simulator/trace/shared_races.h"

#include <algorithm>

namespace flashbook::sim {
namespace {

/// The bytes of a granule of two that an access touches.
uint8_t mask_of(std::size_t granule, std::size_t begin, std::size_t end) {
  const bool low = begin <= 2 * granule, high = end >= 2 * granule + 2;
  return uint8_t(low) | uint8_t(uint8_t(high) << 1);
}

}  // namespace

SharedRaces::SharedRaces(std::size_t bytes)
    : cells_((bytes + kLine - 1) / kLine * kLine / kGranule),
      lines_(cells_.size() * kGranule / kLine),
      reads_(std::size_t(kWarps + kColumnsOfAgents) * cells_.size()),
      reads_of_lines_(std::size_t(kWarps + kColumnsOfAgents) * lines_.size()) {}

SharedRaces::Cell& SharedRaces::cell_at(std::size_t number) {
  Cell& cell = cells_[number];
  if (cell.block != block_) {
    cell = {};
    cell.block = block_;
  }
  return cell;
}

SharedRaces::Line& SharedRaces::line_at(std::size_t number) {
  Line& line = lines_[number];
  if (line.cell.block != block_) {
    line = {};
    line.cell.block = block_;
  }
  return line;
}

/// From now on the line's bytes are remembered apart.
void SharedRaces::split(Line& line) {
  if (line.split) return;
  line.split = true;
  const Cell& cell = line.cell;
  if (cell.clock == 0 && cell.readers == 0 && !cell.in_flight) return;  // nobody has touched it
  const auto number = std::size_t(&line - &lines_[0]);
  for (std::size_t i = number * kLine / kGranule; i < (number + 1) * kLine / kGranule; ++i) {
    cells_[i] = cell;
    for (uint64_t left = cell.readers; left; left &= left - 1) {
      const auto column = std::size_t(__builtin_ctzll(left));
      reads_[column * cells_.size() + i] = reads_of_lines_[column * lines_.size() + number];
    }
  }
}

template <typename Touch>
void SharedRaces::for_each_cell(std::size_t at, std::size_t bytes, bool writes, const Touch& touch) {
  for (std::size_t end = at + bytes; at < end;) {
    const std::size_t number = at / kLine, next = std::min(end, (number + 1) * kLine);
    Line& line = line_at(number);
    const bool whole = next - at == kLine;
    if (whole && !line.split) {
      touch(line.cell, Reads{&reads_of_lines_[number], lines_.size()}, at, uint8_t(3));
    } else {
      split(line);
      for (std::size_t i = at / kGranule; i * kGranule < next; ++i)
        touch(cell_at(i), Reads{&reads_[i], cells_.size()}, i * kGranule, mask_of(i, at, next));
      if (whole && writes) line = {cells_[at / kGranule], false};
    }
    at = next;
  }
}

/// Whether a write by `thread` comes after all reads of a cell.
std::optional<Race> SharedRaces::against_readers(Clocks& clocks, const Cell& cell, const Reads& reads,
                                                 std::size_t at, int thread, uint8_t mask,
                                                 const Race::Side& second) {
  for (uint64_t left = cell.readers; left; left &= left - 1) {
    const int column = __builtin_ctzll(left);
    const Read& read = reads.of(column);
    if (!(read.mask & mask)) continue;
    if (column >= kWarps) {
      const auto agent = int(read.lanes);
      if (clocks.known(thread, agent) < read.clock)
        return Race{Race::Rule::async_read, {agent, read.site, Access::load}, second, at};
      continue;
    }
    for (uint32_t lanes = read.lanes; lanes; lanes &= lanes - 1) {
      const int reader = column * 32 + __builtin_ctz(lanes);
      if (reader != thread && clocks.known(thread, reader) < read.clock)
        return Race{Race::Rule::order, {reader, read.site, Access::load}, second, at};
    }
  }
  return std::nullopt;
}

std::optional<Race> SharedRaces::access(Clocks& clocks, int thread, std::size_t at, std::size_t bytes,
                                        Access access, Site site) {
  std::optional<Race> race;
  const uint32_t now = clocks.now(thread);
  const uint32_t* known = clocks.known_of_others(thread);
  const Race::Side self{thread, site, access};
  for_each_cell(
      at, bytes, writes(access), [&](Cell& cell, const Reads& reads, std::size_t byte, uint8_t mask) {
        if (cell.in_flight && !race)
          race = Race{Race::Rule::in_flight, {cell.writer, cell.site, Access::store}, self, byte};
        if (cell.clock != 0 && cell.writer != thread && (cell.mask & mask) && !race &&
            !(cell.atomic && meets(access)) && known[cell.writer] < cell.clock)
          race = Race{cell.writer < clocks.threads() ? Race::Rule::order : Race::Rule::async_write,
                      {cell.writer, cell.site, cell.atomic ? Access::atomic : Access::store},
                      self,
                      byte};
        if (access == Access::volatile_load) return;
        if (access == Access::load) {
          const int column = thread / 32;
          Read& read = reads.of(column);
          const uint64_t bit = uint64_t(1) << column;
          const uint32_t lane = 1u << thread % 32;
          if ((cell.readers & bit) && read.clock == now) {
            read.lanes |= lane;
            read.mask |= mask;
          } else {
            read = {now, lane, site, mask};
            cell.readers |= bit;
          }
          return;
        }
        if (!race) race = against_readers(clocks, cell, reads, byte, thread, mask, self);
        cell = {
            block_, now, site, uint16_t(thread), mask, access == Access::atomic, uint8_t(cell.written | mask),
            false,  0};
      });
  return race;
}

void SharedRaces::set_in_flight(std::size_t at, std::size_t bytes, bool in_flight) {
  for_each_cell(at, bytes, false,
                [in_flight](Cell& cell, const Reads&, std::size_t, uint8_t) { cell.in_flight = in_flight; });
}

bool SharedRaces::is_written(std::size_t at, std::size_t bytes) const {
  for (std::size_t number = at / kGranule; number * kGranule < at + bytes; ++number) {
    const Line& line = lines_[number * kGranule / kLine];
    if (line.cell.block != block_) return false;
    const Cell& cell = line.split ? cells_[number] : line.cell;
    const uint8_t mask = mask_of(number, at, at + bytes);
    if (cell.block != block_ || (cell.written & mask) != mask) return false;
  }
  return true;
}

std::optional<Race> SharedRaces::async_access(Clocks& clocks, int thread, int agent, uint32_t ticket,
                                              std::size_t at, std::size_t bytes, Access access, Site site) {
  std::optional<Race> race;
  const Race::Side self{agent, site, access};
  for_each_cell(
      at, bytes, writes(access), [&](Cell& cell, const Reads& reads, std::size_t byte, uint8_t mask) {
        if (cell.in_flight && !race)
          race = Race{Race::Rule::in_flight, {cell.writer, cell.site, Access::store}, self, byte};
        if (cell.clock != 0 && cell.writer != agent && (cell.mask & mask) && !race) {
          const Race::Side other{cell.writer, cell.site, cell.atomic ? Access::atomic : Access::store};
          const bool by_agent = cell.writer >= clocks.threads();
          if (cell.writer != thread && clocks.known(thread, cell.writer) < cell.clock)
            race = Race{by_agent ? Race::Rule::async_write : Race::Rule::order, other, self, byte};
          else if (!by_agent && clocks.known_to_proxy(thread, cell.writer, Proxied::shared) < cell.clock)
            race = Race{Race::Rule::proxy_fence, other, self, byte};
        }
        if (access == Access::load) {
          const int column = kWarps + (agent - clocks.threads()) % kColumnsOfAgents;
          reads.of(column) = {ticket, uint32_t(agent), site, mask};
          cell.readers |= uint64_t(1) << column;
          return;
        }
        if (!race) race = against_readers(clocks, cell, reads, byte, thread, mask, self);
        cell = {block_, ticket, site, uint16_t(agent), mask, false, uint8_t(cell.written | mask), false, 0};
      });
  return race;
}

}  // namespace flashbook::sim
