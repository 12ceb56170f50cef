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

constexpr std::size_t kGranulesOfSector = 16;

}  // namespace

DeviceMemory::DeviceMemory(std::uintptr_t begin, std::uintptr_t end)
    : begin_(begin),
      end_(end),
      sectors_((end - begin) / kSectorBytes + 1),
      summaries_((end - begin) / kSectorBytes + 1),
      cells_((end - begin) / kGranule + 1) {}

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

/// Whether nobody has written these granules' sectors and somebody's read of each is on record: a further
/// read changes nothing.
bool DeviceMemory::is_known_read(std::size_t first, std::size_t end) {
  const Summary& summary = summaries_[first / kGranulesOfSector];
  if ((end - 1) / kGranulesOfSector != first / kGranulesOfSector) return false;
  const uint32_t mask = ((1u << (end - first)) - 1) << first % kGranulesOfSector;
  return !load(summary.written) && (load(summary.read) & mask) == mask;
}

void DeviceMemory::summarise(std::size_t granule, Access access) {
  Summary& summary = summaries_[granule / kGranulesOfSector];
  if (writes(access))
    store(summary.written, true);
  else
    __atomic_fetch_or(&summary.read, uint16_t(1u << granule % kGranulesOfSector), __ATOMIC_RELAXED);
}

bool DeviceMemory::is_written(std::uintptr_t address, std::size_t bytes) const {
  if (address < begin_ || address + bytes > end_) return true;
  const std::size_t end = (address - begin_ + bytes + kGranule - 1) / kGranule;
  for (std::size_t number = (address - begin_) / kGranule; number < end; ++number)
    if (load(cells_[number].writer) != 0) return true;
  return false;
}

void DeviceMemory::note_written() const {
  const auto address_of = [this](std::size_t granule) {
    return reinterpret_cast<const unsigned char*>(begin_ + granule * kGranule);
  };
  for (const auto& memory : incomplete_allocations()) {
    const std::size_t first = (std::uintptr_t(memory.data()) - begin_) / kGranule;
    const std::size_t end = std::min(cells_.size(), first + (memory.size() + kGranule - 1) / kGranule);
    std::size_t written = first;  // the beginning of a run of granules that are
    const auto note = [&](std::size_t until) {
      const unsigned char* stop = std::min(address_of(until), memory.data() + memory.size());
      if (written < until) sim::note_written(address_of(written), std::size_t(stop - address_of(written)));
    };
    for (std::size_t granule = first; granule < end;) {
      const std::size_t sector = granule / kGranulesOfSector;
      if (granule % kGranulesOfSector == 0 && !summaries_[sector].written) {
        note(granule);
        written = granule += kGranulesOfSector;
      } else if (cells_[granule].writer == 0) {
        note(granule);
        written = ++granule;
      } else {
        ++granule;
      }
    }
    note(end);
  }
}

std::optional<BlockConflict> DeviceMemory::access(const Who& who, std::uintptr_t address, std::size_t bytes,
                                                  Access access, Site site) {
  constexpr uint64_t kMostBlocks = (1 << 24) - 1;
  if (address < begin_ || address + bytes > end_ || who.block >= kMostBlocks) return std::nullopt;
  const std::size_t begin = address - begin_, last = begin + bytes;
  const std::size_t first = begin / kGranule, end = (last + kGranule - 1) / kGranule;
  if (!writes(access) && is_known_read(first, end)) return std::nullopt;
  Stamp now{uint32_t(who.block), who.agent, who.clock, 0, meets(access)};
  std::optional<BlockConflict> conflict;
  const auto compare = [&](uint64_t packed, Access before, Site at, std::size_t number) {
    if (packed == 0 || conflict) return;
    const Stamp other = Stamp::unpacked(packed);
    if (!(other.mask & now.mask) || (other.atomic && now.atomic) ||
        (other.block == now.block && other.thread == now.thread))
      return;
    Race::Rule rule = Race::Rule::order;
    if (!who.order.knows(who.thread, other.block, other.thread, other.clock)) {
      if (who.order.is_agent(other.thread))
        rule = writes(before) ? Race::Rule::async_write : Race::Rule::async_read;
    } else if (writes(before) && !writes(access) && who.order.is_agent(now.thread) &&
               !who.order.is_agent(other.thread)) {
      rule = Race::Rule::proxy_fence;
    } else {
      return;
    }
    conflict = BlockConflict{
        rule,
        {other.block, other.thread, at, other.atomic && writes(before) ? Access::atomic : before},
        {who.block, who.agent, site, access},
        begin_ + number * kGranule};
  };
  for (std::size_t number = first; number < end; ++number) {
    Cell& cell = cells_[number];
    now.mask = uint8_t(uint8_t(begin <= 2 * number) | uint8_t(last >= 2 * number + 2) << 1);
    summarise(number, access);
    const uint64_t writer = load(cell.writer), reader = load(cell.reader);
    compare(writer, Access::store, load(cell.written_at), number);
    if (!writes(access)) {
      if (reader == 0 || Stamp::unpacked(reader).block == now.block) {
        store(cell.reader, now.packed());
        store(cell.read_at, site);
      }
      continue;
    }
    compare(reader, Access::load, load(cell.read_at), number);
    // Neighbouring bytes that one block writes are remembered together.
    Stamp both = now;
    if (writer != 0 && Stamp::unpacked(writer).block == now.block) both.mask |= Stamp::unpacked(writer).mask;
    store(cell.writer, both.packed());
    store(cell.written_at, site);
  }
  return conflict;
}

}  // namespace flashbook::sim
