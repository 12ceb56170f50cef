#include "common/simulator/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/simulator/block/scheduler.h"
#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

/// Reserves address space. Accessible pages read as zero, and use host memory only once they are written.
void* reserve(std::size_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw SettingError("the simulator cannot reserve " + std::to_string(bytes >> 30) +
                       " GB of address space: raise the limit (ulimit -v)");
  return address;
}

/// Whether the processor refuses accesses to unallocated memory. If it cannot, reads of such memory return
/// NaN, and a launch that wrote to it is reported when the launch has finished.
#ifdef __EMSCRIPTEN__
constexpr bool kIsGuarded = false;
#else
constexpr bool kIsGuarded = true;
#endif
constexpr unsigned char kUnwritten = 0xff;
/// The maximum number of pages between allocations, in addition to the guard space.
constexpr int kScatteredPages = 64;

constexpr std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// The simulated device memory. Gaps and allocations are keyed by their offset from its start.
///
/// The processor refuses accesses between allocations, at the granularity of pages: an allocation ends at the
/// end of its last page (less the padding to a multiple of kGlobalAlignment). If warps run in a random order,
/// the distances between allocations are random as well: a kernel that relies on them is wrong.
class Arena {
 public:
  Arena()
      : page_(std::size_t(sysconf(_SC_PAGESIZE))),
        base_(static_cast<unsigned char*>(reserve(kGlobalBytes, PROT_NONE))),
        valid_bytes_(static_cast<std::uint16_t*>(
            reserve(kGlobalBytes / kGlobalAlignment * sizeof(std::uint16_t), PROT_READ | PROT_WRITE))) {
    if (!kIsGuarded) std::memset(base_, kUnwritten, kGlobalBytes);
    // The first bytes are never allocated, so that there is guard space before the first allocation.
    gaps_[kGuardBytes] = kGlobalBytes - kGuardBytes;
  }

  void* allocate(std::size_t bytes) {
    if (bytes <= kGlobalBytes) {
      const std::size_t needed = round_up(bytes, page_) + kGuardBytes;
      // Searches after the last allocation first, then from the start.
      for (const std::size_t least : {last_ + scatter(), std::size_t(0)})
        for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
          if (const std::size_t from = std::max(gap->first, least); from + needed <= gap->first + gap->second)
            return take(gap, from, needed, bytes);
    }
    throw Error("no room for " + std::to_string(bytes) +
                " bytes in the simulator's device memory: the largest gap has " +
                std::to_string(largest_gap()) + " of " + std::to_string(kGlobalBytes) + " bytes");
  }

  void free(void* address) {
    const auto offset = std::size_t(static_cast<unsigned char*>(address) - base_);
    const auto allocation = allocations_.find(offset);
    if (!is_inside(address) || allocation == allocations_.end())
      throw Error(
          "free of an address that is not the start of an allocation in the simulator's device memory");
    const std::size_t begin = allocation->second.begin, size = allocation->second.size,
                      bytes = allocation->second.bytes;
    allocations_.erase(allocation);
    freed_[offset] = bytes;
    std::memset(valid_bytes_ + offset / kGlobalAlignment, 0,
                round_up(bytes, kGlobalAlignment) / kGlobalAlignment * sizeof(std::uint16_t));
    // Maps new pages over the old ones, which are returned to the host.
    mmap(base_ + begin, size - kGuardBytes, PROT_NONE,
         MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!kIsGuarded) std::memset(base_ + begin, kUnwritten, size);
    const auto gap = merge(gaps_.emplace(begin, size).first);
    if (gap != gaps_.begin()) merge(std::prev(gap));
  }

  /// Returns the first byte between allocations that has been written; null if there is none.
  const void* written_outside() const {
    const unsigned char* begin = base_;
    const auto find = [&](const unsigned char* end) {
      return std::find_if(begin, end, [](unsigned char byte) { return byte != kUnwritten; });
    };
    for (const auto& [offset, allocation] : allocations_) {
      if (const auto* found = find(base_ + offset); found != base_ + offset) return found;
      begin = base_ + offset + allocation.bytes;
    }
    const unsigned char* const end =
        std::min<const unsigned char*>(begin + kGuardBytes, base_ + kGlobalBytes);
    const auto* found = find(end);
    return found == end ? nullptr : found;
  }

  std::size_t largest_gap() const {
    std::size_t largest = 0;
    for (const auto& [offset, size] : gaps_) largest = std::max(largest, size);
    return largest < kGuardBytes ? 0 : largest - kGuardBytes;
  }

  std::uintptr_t begin() const { return std::uintptr_t(base_); }

  std::span<const unsigned char> in_use() const {
    if (allocations_.empty()) return {base_, std::size_t(0)};
    const auto& [first, ignored] = *allocations_.begin();
    const auto& [last, allocation] = *allocations_.rbegin();
    return {base_ + first, base_ + last + allocation.bytes};
  }

  const std::uint16_t* valid_bytes() const { return valid_bytes_; }

  bool is_inside(const void* address) const {
    return std::uintptr_t(address) - std::uintptr_t(base_) < kGlobalBytes;
  }

  bool is_allocated(const void* address, std::size_t bytes) const {
    if (bytes == 0 || bytes > kGlobalBytes || !is_inside(address)) return false;
    const std::size_t first = std::uintptr_t(address) - std::uintptr_t(base_);
    const std::size_t last = first + bytes - 1;
    if (last >= kGlobalBytes) return false;
    // All granules of an allocation except the last are full, and empty ones follow. So the bytes are in one
    // allocation if every granule before the range's last one is full.
    for (std::size_t granule = first / kGlobalAlignment; granule < last / kGlobalAlignment; ++granule)
      if (valid_bytes_[granule] != kGlobalAlignment) return false;
    return last % kGlobalAlignment < valid_bytes_[last / kGlobalAlignment];
  }

  void note_written(const void* address, std::size_t bytes) {
    const auto [allocation, first] = find(address, bytes);
    if (!allocation || allocation->is_written) return;
    if (bytes == allocation->bytes) return complete(*allocation);
    if (allocation->written.empty()) {
      allocation->written.resize(allocation->bytes);
      allocation->missing = allocation->bytes;
    }
    const auto begin = allocation->written.begin() + std::ptrdiff_t(first),
               end = begin + std::ptrdiff_t(bytes);
    allocation->missing -= std::size_t(std::count(begin, end, false));
    std::fill(begin, end, true);
    if (allocation->missing == 0) complete(*allocation);
  }

  void note_all_written() {
    for (auto& [offset, allocation] : allocations_) complete(allocation);
  }

  void note_unwritten(const void* address) {
    const auto [allocation, first] = find(address, 1);
    if (!allocation || first != 0) return;
    allocation->is_written = false;
    allocation->written.clear();
  }

  bool is_written(const void* address, std::size_t bytes) {
    const auto [allocation, first] = find(address, bytes);
    if (!allocation || allocation->is_written) return true;
    if (allocation->written.empty()) return false;
    const auto begin = allocation->written.begin() + std::ptrdiff_t(first);
    return std::find(begin, begin + std::ptrdiff_t(bytes), true) != begin + std::ptrdiff_t(bytes);
  }

  bool is_same_allocation(const void* a, const void* b) {
    const Allocation* const of_a = find(a, 1).first;
    return of_a && of_a == find(b, 1).first;
  }

  /// Describes the position of an address relative to the freed allocation that contained it or to the
  /// nearest allocation; empty if the address is allocated.
  std::string describe_outside(const void* address) {
    if (find(address, 1).first) return "";
    const std::size_t offset = std::uintptr_t(address) - std::uintptr_t(base_);
    const auto text_of = [](std::size_t distance, const char* where, std::size_t bytes) {
      return " (" + std::to_string(distance) + where + "an allocation of " + std::to_string(bytes) +
             " bytes)";
    };
    const auto freed = freed_.upper_bound(offset);
    if (freed != freed_.begin() && offset - std::prev(freed)->first < std::prev(freed)->second)
      return text_of(offset - std::prev(freed)->first, " bytes into freed memory, formerly ",
                     std::prev(freed)->second);
    const auto next = allocations_.upper_bound(offset);
    if (next != allocations_.begin()) {
      const auto& [begin, before] = *std::prev(next);
      if (const std::size_t behind = offset - begin - before.bytes; behind < kGuardBytes)
        return text_of(behind, " bytes past the end of ", before.bytes);
    }
    if (next != allocations_.end() && next->first - offset < kGuardBytes)
      return text_of(next->first - offset, " bytes before ", next->second.bytes);
    return " (far from any allocation)";
  }

  uint64_t checksum(const void* except) const {
    const auto left_out = std::uintptr_t(except) / sizeof(uint64_t);
    uint64_t sum = 0;
    for (const auto& [offset, allocation] : allocations_) {
      const auto* words = reinterpret_cast<const uint64_t*>(base_ + offset);
      for (std::size_t i = 0; i < round_up(allocation.bytes, kGlobalAlignment) / sizeof(uint64_t); ++i)
        if (std::uintptr_t(words + i) / sizeof(uint64_t) != left_out)
          sum = (sum + words[i]) * 0x9e3779b97f4a7c15;
    }
    return sum;
  }

  int device_of(const void* address) {
    const auto [allocation, first] = find(address, 1);
    return allocation ? allocation->device : -1;
  }

  std::vector<std::span<const unsigned char>> incomplete() const {
    std::vector<std::span<const unsigned char>> all;
    for (const auto& [offset, allocation] : allocations_)
      if (!allocation.is_written) all.emplace_back(base_ + offset, allocation.bytes);
    return all;
  }

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // maps offsets to sizes in bytes
  struct Allocation {
    std::size_t begin;  // start of the allocation's first page
    std::size_t size;   // size of its pages and the guard space after them
    std::size_t bytes;  // size as requested
    int device;
    bool is_written = false;      // whether all bytes have been written
    std::vector<bool> written{};  // the bytes that have been written, unless all have been; empty if none
    std::size_t missing = 0;      // number of bytes that have not been written
  };
  using Allocations = std::map<std::size_t, Allocation>;  // keyed by offset

  /// Returns the allocation that contains these bytes, and their offset in that allocation.
  std::pair<Allocation*, std::size_t> find(const void* address, std::size_t bytes) {
    if (!is_allocated(address, bytes)) return {nullptr, 0};
    const std::size_t offset = std::uintptr_t(address) - std::uintptr_t(base_);
    const auto found = std::prev(allocations_.upper_bound(offset));
    return {&found->second, offset - found->first};
  }

  /// Allocates a part of a gap.
  void* take(Ranges::iterator gap, std::size_t begin, std::size_t needed, std::size_t bytes) {
    if (mprotect(base_ + begin, needed - kGuardBytes, PROT_READ | PROT_WRITE) != 0)
      throw Error("the host cannot allocate " + std::to_string(bytes) +
                  " bytes for the simulator's device memory");
    const std::size_t end = gap->first + gap->second;
    gap->second = begin - gap->first;
    if (gap->second == 0) gaps_.erase(gap);
    if (begin + needed < end) gaps_[begin + needed] = end - begin - needed;
    last_ = begin + needed;
    freed_.erase(freed_.lower_bound(begin), freed_.lower_bound(begin + needed));
    const std::size_t offset = begin + needed - kGuardBytes - round_up(bytes, kGlobalAlignment);
    allocations_.emplace(offset, Allocation{begin, needed, bytes, current_device()});
    for (std::size_t done = 0; done < bytes; done += kGlobalAlignment)
      valid_bytes_[(offset + done) / kGlobalAlignment] =
          std::uint16_t(std::min(kGlobalAlignment, bytes - done));
    return std::memset(base_ + offset, 0xff, bytes);
  }

  /// Returns the number of bytes between the last allocation and the next, in addition to the guard space: a
  /// number of pages that depends on the seed.
  std::size_t scatter() {
    const uint64_t seed = options().seed;
    return seed == 0 ? 0 : page_ * std::size_t(Random(seed, ++scattered_).below(kScatteredPages));
  }

  static void complete(Allocation& allocation) {
    allocation.is_written = true;
    allocation.written = {};
  }

  /// Merges a gap with the next one if they are adjacent.
  Ranges::iterator merge(Ranges::iterator gap) {
    const auto next = std::next(gap);
    if (next == gaps_.end() || gap->first + gap->second != next->first) return gap;
    gap->second += next->second;
    gaps_.erase(next);
    return gap;
  }

  std::size_t page_;  // page size in bytes
  unsigned char* base_;
  std::uint16_t* valid_bytes_;  // one number per granule of kGlobalAlignment bytes
  Ranges gaps_;
  Ranges freed_;  // the latest allocations in the gaps
  Allocations allocations_;
  std::size_t last_ = 0;    // end of the last allocation
  uint64_t scattered_ = 0;  // number of allocations at a random distance
};

std::mutex arena_mutex;
thread_local constinit int device_in_use = 0;

/// Never destroyed, since buffers with static lifetime are freed late.
Arena& arena() {
  static Arena& arena = *new Arena;
  return arena;
}

}  // namespace

int current_device() { return device_in_use; }
void set_current_device(int device) { device_in_use = device; }

int device_of(const void* address) {
  const std::lock_guard lock(arena_mutex);
  return arena().device_of(address);
}

void* allocate_global(std::size_t bytes) {
  const std::lock_guard lock(arena_mutex);
  return arena().allocate(bytes);
}

void free_global(void* address) {
  if (!address) return;
  const std::lock_guard lock(arena_mutex);
  arena().free(address);
}

std::size_t largest_global_gap() {
  const std::lock_guard lock(arena_mutex);
  return arena().largest_gap();
}

std::uintptr_t global_memory_begin() { return arena().begin(); }

std::span<const unsigned char> global_memory_in_use() {
  const std::lock_guard lock(arena_mutex);
  return arena().in_use();
}

void note_written(const void* address, std::size_t bytes) {
  const std::lock_guard lock(arena_mutex);
  arena().note_written(address, bytes);
}

void note_all_written() {
  const std::lock_guard lock(arena_mutex);
  arena().note_all_written();
}

void note_unwritten(const void* address) {
  const std::lock_guard lock(arena_mutex);
  arena().note_unwritten(address);
}

bool is_written(const void* address, std::size_t bytes) {
  const std::lock_guard lock(arena_mutex);
  return arena().is_written(address, bytes);
}

std::vector<std::span<const unsigned char>> incomplete_allocations() {
  const std::lock_guard lock(arena_mutex);
  return arena().incomplete();
}

bool is_global(const void* address) { return arena().is_inside(address); }

const std::uint16_t* allocated_of_granules() { return arena().valid_bytes(); }

bool is_allocated(const void* address, std::size_t bytes) { return arena().is_allocated(address, bytes); }

bool is_same_allocation(const void* a, const void* b) {
  const std::lock_guard lock(arena_mutex);
  return arena().is_same_allocation(a, b);
}

uint64_t checksum_of_allocations(const void* except) {
  const std::lock_guard lock(arena_mutex);
  return arena().checksum(except);
}

std::string describe_written_outside() {
  if (kIsGuarded) return "";
  const void* address;
  {
    const std::lock_guard lock(arena_mutex);
    address = arena().written_outside();
  }
  if (!address) return "";
  return "out of bounds: a thread of this launch has written to " + describe_global(address) +
         ", where there is no memory. Check the pointer, and that no index exceeds the last row, column or "
         "stage";
}

std::string describe_global(const void* address) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%p", address);
  const std::lock_guard lock(arena_mutex);
  return std::string("global memory ") + digits + arena().describe_outside(address);
}

}  // namespace flashbook::sim
