#include "common/simulator/trace/device_memory.h"

#include <algorithm>

#include "common/simulator/memory.h"
#include "common/simulator/trace/counts.h"

namespace flashbook::sim {
namespace {

template <typename T>
T load(const T& value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}
template <typename T>
void store(T& value, T next) {
  __atomic_store_n(&value, next, __ATOMIC_RELAXED);
}

}  // namespace

DeviceMemory::DeviceMemory(std::uintptr_t begin, std::uintptr_t end)
    : begin_(begin),
      end_(end),
      sectors_((end - begin) / kSectorBytes + 1),
      summaries_((end - begin) / kSectorBytes + 1),
      split_(summaries_.size()),
      cells_((end - begin) / kGranule + 1),
      odd_cells_(cells_.size()),
      earlier_(cells_.size()),
      odd_earlier_(cells_.size()) {}

void DeviceMemory::touch(uint64_t sector, Access access) {
  const uint64_t number = sector - begin_ / kSectorBytes;
  if (number >= sectors_.size()) return;
  const uint8_t bits = !writes(access) ? 1 : access == Access::store ? 2 : 3;
  uint8_t& known = sectors_[number];
  if ((__atomic_load_n(&known, __ATOMIC_RELAXED) & bits) == bits) return;
  const uint8_t news = bits & uint8_t(~__atomic_fetch_or(&known, bits, __ATOMIC_RELAXED));
  if (news & 1) read_.fetch_add(kSectorBytes, std::memory_order_relaxed);
  if (news & 2) written_.fetch_add(kSectorBytes, std::memory_order_relaxed);
}

void DeviceMemory::summarise(std::size_t granule, Access access) {
  uint32_t& summary = summaries_[granule / kGranulesPerSector];
  const uint32_t bit = 1u << granule % kGranulesPerSector << (writes(access) ? kGranulesPerSector : 0);
  if (!(load(summary) & bit)) __atomic_fetch_or(&summary, bit, __ATOMIC_RELAXED);
}

/// Records a plain access if no other access has touched these granules before.
bool DeviceMemory::notes_first(const Who& who, std::size_t begin, std::size_t bytes, Access access,
                               Site site) {
  if (bytes < kGranule || access == Access::atomic || !is_piece_of_sector(begin, bytes)) return false;
  uint32_t& summary = summaries_[begin / kSectorBytes];
  const uint32_t bits = bits_of(begin, bytes);
  if (load(summary) & (bits | bits << kGranulesPerSector) || load(split_[begin / kSectorBytes]) & bits)
    return false;
  __atomic_fetch_or(&summary, writes(access) ? bits << kGranulesPerSector : bits, __ATOMIC_RELAXED);
  const uint64_t stamp = Stamp{uint32_t(who.block), who.agent, who.clock, meets(access)}.packed();
  Cell* const end = &cells_[(begin + bytes) / kGranule];
  for (Cell* cell = &cells_[begin / kGranule]; cell < end; ++cell) {
    store(writes(access) ? cell->writer : cell->reader, stamp);
    store(writes(access) ? cell->written_at : cell->read_at, site);
  }
  return true;
}

bool DeviceMemory::is_written(std::uintptr_t address, std::size_t bytes) const {
  if (address < begin_ || address + bytes > end_) return true;
  const std::size_t end = (address - begin_ + bytes + kGranule - 1) / kGranule;
  for (std::size_t number = (address - begin_) / kGranule; number < end; ++number)
    if (writer_of(number) != 0) return true;
  return false;
}

std::optional<uint64_t> DeviceMemory::last_writer(std::uintptr_t address) const {
  if (address < begin_ || address >= end_) return std::nullopt;
  const uint64_t writer = writer_of((address - begin_) / kGranule);
  return writer == 0 ? std::nullopt : std::optional<uint64_t>(Stamp::unpacked(writer).block);
}

/// Records the two bytes of a granule individually from now on.
void DeviceMemory::split(std::size_t granule) {
  if (is_split(granule)) return;
  odd_cells_[granule] = cells_[granule];
  odd_earlier_[granule] = earlier_[granule];
  __atomic_fetch_or(&split_[granule / kGranulesPerSector], uint16_t(1u << granule % kGranulesPerSector),
                    __ATOMIC_RELAXED);
}

/// Returns the thread that wrote one of the granule's bytes; 0 if there is none.
uint64_t DeviceMemory::writer_of(std::size_t granule) const {
  const uint64_t writer = load(cells_[granule].writer);
  return writer == 0 && is_split(granule) ? load(odd_cells_[granule].writer) : writer;
}

void DeviceMemory::note_written() const {
  const auto address_of = [this](std::size_t granule) {
    return reinterpret_cast<const unsigned char*>(begin_ + granule * kGranule);
  };
  for (const auto& memory : incomplete_allocations()) {
    const std::size_t first = (std::uintptr_t(memory.data()) - begin_) / kGranule;
    const std::size_t end = std::min(cells_.size(), first + (memory.size() + kGranule - 1) / kGranule);
    std::size_t written = first;  // start of a sequence of written granules
    const auto note = [&](std::size_t until) {
      const unsigned char* stop = std::min(address_of(until), memory.data() + memory.size());
      if (written < until) sim::note_written(address_of(written), std::size_t(stop - address_of(written)));
    };
    for (std::size_t granule = first; granule < end;) {
      const std::size_t sector = granule / kGranulesPerSector;
      if (granule % kGranulesPerSector == 0 && !(summaries_[sector] & kWritten)) {
        note(granule);
        written = granule += kGranulesPerSector;
      } else if (writer_of(granule) == 0) {
        note(granule);
        written = ++granule;
      } else {
        ++granule;
      }
    }
    note(end);
  }
}

/// Records an atomic operation that follows a write by `writer`.
void DeviceMemory::remember_earlier(Earlier& earlier, uint64_t writer, Site written_at, const Stamp& now) {
  if (writer == 0) return;
  const Stamp before = Stamp::unpacked(writer), first = Stamp::unpacked(load(earlier.writer));
  if (before.atomic && before.block == now.block && before.thread == now.thread) return;
  // A plain store before the first atomic operation takes precedence: all of the atomics must see it.
  if (before.atomic && load(earlier.writer) != 0 && !first.atomic) return;
  store(earlier.writer, writer);
  store(earlier.written_at, written_at);
}

std::optional<BlockConflict> DeviceMemory::access(const Who& who, std::uintptr_t address, std::size_t bytes,
                                                  Access access, Site site) {
  constexpr uint64_t kMaxBlocks = (1 << 24) - 1;
  if (address < begin_ || address + bytes > end_ || who.block >= kMaxBlocks) return std::nullopt;
  const std::size_t begin = address - begin_, last = begin + bytes;
  const std::size_t first = begin / kGranule, end = (last + kGranule - 1) / kGranule;
  if (!writes(access) && is_known_read(address, bytes)) return std::nullopt;
  if (notes_first(who, begin, bytes, access, site)) return std::nullopt;
  const Stamp now{uint32_t(who.block), who.agent, who.clock, meets(access)};
  const uint64_t stamp = now.packed();
  std::optional<BlockConflict> conflict;
  const auto compare = [&](uint64_t packed, Access before, Site at, std::size_t byte) {
    if (packed == 0 || conflict) return;
    const Stamp other = Stamp::unpacked(packed);
    if (other.atomic && now.atomic) return;
    // An agent's work on several tickets is unordered.
    if (other.block == now.block && other.thread == now.thread &&
        (!who.order.is_agent(now.thread) || other.clock == (now.clock & Stamp::kMaxClock)))
      return;
    // A block that has acquired from another block's atomic operation follows that operation.
    if (other.atomic && who.order.met_at(who.thread, address, other.block)) return;
    Race::Rule rule = Race::Rule::order;
    if (!who.order.knows(who.thread, other.block, other.thread, other.clock)) {
      if (who.order.is_agent(other.thread))
        rule = writes(before) ? Race::Rule::async_write : Race::Rule::async_read;
      else if (who.order.would_know(who.thread, other.block, other.thread, other.clock))
        rule = Race::Rule::old_value;
    } else if (writes(before) && who.order.is_agent(now.thread) && !who.order.is_agent(other.thread) &&
               !who.order.proxy_knows(who.thread, other.block, other.thread, other.clock)) {
      rule = Race::Rule::proxy_fence;
    } else {
      return;
    }
    conflict = BlockConflict{
        rule,
        {other.block, other.thread, at, other.atomic && writes(before) ? Access::atomic : before},
        {who.block, who.agent, site, access},
        begin_ + byte};
  };
  const auto visit = [&](Cell& cell, Earlier& earlier, std::size_t byte) {
    const uint64_t writer = load(cell.writer), reader = load(cell.reader);
    if ((writer | reader) == 0 && access != Access::atomic) {  // the first access
      store(writes(access) ? cell.writer : cell.reader, stamp);
      store(writes(access) ? cell.written_at : cell.read_at, site);
      return;
    }
    compare(writer, Access::store, load(cell.written_at), byte);
    const Stamp last_writer = Stamp::unpacked(writer);
    // A store by the thread that last updated the counter is a reset of that counter.
    const bool is_own = last_writer.block == now.block && last_writer.thread == now.thread;
    if (writer != 0 && last_writer.atomic && !(writes(access) && is_own))
      compare(load(earlier.writer), Access::store, load(earlier.written_at), byte);
    if (!writes(access)) {
      if (reader == 0 || Stamp::unpacked(reader).block == now.block) {
        store(cell.reader, stamp);
        store(cell.read_at, site);
      }
      return;
    }
    compare(reader, Access::load, load(cell.read_at), byte);
    if (now.atomic) remember_earlier(earlier, writer, load(cell.written_at), now);
    store(cell.writer, stamp);
    store(cell.written_at, site);
  };
  for (std::size_t number = first; number < end; ++number) {
    const bool even = begin <= kGranule * number, odd = last >= kGranule * (number + 1);
    if (!even || !odd) split(number);
    const bool apart = is_split(number) && !writes(access);
    if (!apart) summarise(number, access);
    if (even) visit(cells_[number], earlier_[number], kGranule * number);
    if (odd && is_split(number)) visit(odd_cells_[number], odd_earlier_[number], kGranule * number + 1);
    if (apart && load(cells_[number].reader) != 0 && load(odd_cells_[number].reader) != 0)
      summarise(number, access);
  }
  return conflict;
}

std::optional<BlockConflict> DeviceMemory::conflict_after(const Who& who, std::uintptr_t address,
                                                          std::size_t bytes, Access access, Site site) const {
  if (address < begin_ || address + bytes > end_) return std::nullopt;
  for (std::size_t number = (address - begin_) / kGranule; begin_ + number * kGranule < address + bytes;
       ++number) {
    const std::uintptr_t byte = begin_ + number * kGranule;
    const bool even = address <= byte, odd = address + bytes >= byte + kGranule;
    const bool is_odd = is_split(number) && odd && (!even || cells_[number].writer == 0);
    const Cell& cell = (is_odd ? odd_cells_ : cells_)[number];
    const bool written = cell.writer != 0;
    if (!written && !(cell.reader != 0 && writes(access))) continue;
    const Stamp other = Stamp::unpacked(written ? cell.writer : cell.reader);
    return BlockConflict{Race::Rule::launch_before,
                         {other.block, other.thread, written ? cell.written_at : cell.read_at,
                          !written       ? Access::load
                          : other.atomic ? Access::atomic
                                         : Access::store},
                         {who.block, who.agent, site, access},
                         byte + is_odd};
  }
  return std::nullopt;
}

}  // namespace flashbook::sim
