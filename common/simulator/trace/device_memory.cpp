#include "common/simulator/trace/device_memory.h"

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
  const uint8_t bits = access == Access::load ? 1 : access == Access::store ? 2 : 3;
  uint8_t& known = sectors_[number];
  if ((__atomic_load_n(&known, __ATOMIC_RELAXED) & bits) == bits) return;
  const uint8_t news = bits & uint8_t(~__atomic_fetch_or(&known, bits, __ATOMIC_RELAXED));
  if (news & 1) read_.fetch_add(kSectorBytes, std::memory_order_relaxed);
  if (news & 2) written_.fetch_add(kSectorBytes, std::memory_order_relaxed);
}

/// Whether nobody else has written these granules' sectors and somebody's read of each is on record: a
/// further read changes nothing.
bool DeviceMemory::is_known_read(uint32_t self, std::size_t first, std::size_t end) {
  const Summary& summary = summaries_[first / kGranulesOfSector];
  if ((end - 1) / kGranulesOfSector != first / kGranulesOfSector) return false;
  const uint32_t writer = load(summary.writer);
  const uint32_t mask = ((1u << (end - first)) - 1) << first % kGranulesOfSector;
  return (writer == 0 || writer == self) && (load(summary.read) & mask) == mask;
}

void DeviceMemory::summarise(uint32_t self, std::size_t granule, Access access) {
  Summary& summary = summaries_[granule / kGranulesOfSector];
  if (access == Access::load) {
    __atomic_fetch_or(&summary.read, uint16_t(1u << granule % kGranulesOfSector), __ATOMIC_RELAXED);
  } else if (const uint32_t writer = load(summary.writer); writer != self) {
    store(summary.writer, writer == 0 ? self : kSeveral);
  }
}

std::optional<BlockConflict> DeviceMemory::access(uint64_t block, std::uintptr_t address, std::size_t bytes,
                                                  Access access, Site site) {
  if (bytes < kGranule || address < begin_ || address + bytes > end_) return std::nullopt;
  const auto self = uint32_t(block + 1);
  std::optional<BlockConflict> conflict;
  const std::size_t first = (address - begin_) / kGranule, end = (address + bytes - begin_) / kGranule;
  if (access == Access::load && is_known_read(self, first, end)) return std::nullopt;
  for (std::size_t number = first; number < end; ++number) {
    Cell& cell = cells_[number];
    summarise(self, number, access);
    if (const uint32_t writer = load(cell.writer); writer != 0 && writer != self && !conflict)
      conflict = BlockConflict{{writer - 1, load(cell.written_at), Access::store},
                               {block, site, access},
                               begin_ + number * kGranule};
    const uint32_t reader = load(cell.reader);
    if (access == Access::load) {
      if (reader == 0) {
        store(cell.reader, self);
        store(cell.read_at, site);
      }
      continue;
    }
    if (reader != 0 && reader != self && !conflict)
      conflict = BlockConflict{
          {reader - 1, load(cell.read_at), Access::load}, {block, site, access}, begin_ + number * kGranule};
    store(cell.writer, self);
    store(cell.written_at, site);
  }
  return conflict;
}

}  // namespace flashbook::sim
