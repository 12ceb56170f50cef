#include "common/simulator/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/simulator/launch.h"

namespace flashbook::sim {
namespace {

/// Reserves address space that reads as zero and takes memory only where it is written.
void* reserve(std::size_t bytes) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    throw SettingError("the simulator cannot reserve " + std::to_string(bytes >> 30) +
                       " GB of address space: raise the limit (ulimit -v)");
  return address;
}

/// Gives the host the whole pages of a range back; they read as zero afterwards.
void give_back_pages(std::uintptr_t begin, std::uintptr_t end) {
  const auto page = std::uintptr_t(sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) & ~(page - 1);
  end &= ~(page - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kGlobalAlignment - 1) / kGlobalAlignment * kGlobalAlignment;
}

/// The device memory. Gaps and allocations are kept by offset from its beginning.
class Arena {
 public:
  Arena()
      : base_(static_cast<unsigned char*>(reserve(kGlobalBytes))),
        valid_bytes_(
            static_cast<std::uint16_t*>(reserve(kGlobalBytes / kGlobalAlignment * sizeof(std::uint16_t)))) {
    // The first bytes stay a gap for ever, so that even the first allocation has a red zone before it.
    gaps_[kGlobalAlignment] = kGlobalBytes - kGlobalAlignment;
  }

  void* allocate(std::size_t bytes) {
    if (bytes <= kGlobalBytes) {
      const std::size_t needed = round_up(bytes) + kGlobalAlignment;  // with the red zone behind it
      for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
        if (gap->second >= needed) return take(gap, needed, bytes);
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
          "free of an address that is not the beginning of an allocation in the simulator's device memory");
    const std::size_t size = allocation->second.size;
    allocations_.erase(allocation);
    std::memset(valid_bytes_ + offset / kGlobalAlignment, 0, size / kGlobalAlignment * sizeof(std::uint16_t));
    auto gap = gaps_.emplace(offset, size).first;
    gap = merge(gap);
    if (gap != gaps_.begin()) gap = merge(std::prev(gap));
    // Small neighbours share a page; it can go when both are free.
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    const auto page = std::size_t(sysconf(_SC_PAGESIZE));
    give_back_pages(begin + std::max(gap->first, offset < page ? 0 : offset - page),
                    begin + std::min(gap->first + gap->second, offset + size + page));
  }

  std::size_t largest_gap() const {
    std::size_t largest = 0;
    for (const auto& [offset, size] : gaps_) largest = std::max(largest, size);
    return largest < kGlobalAlignment ? 0 : largest - kGlobalAlignment;
  }

  std::span<const unsigned char> in_use() const {
    if (allocations_.empty()) return {base_, 0};
    const auto& [offset, allocation] = *allocations_.rbegin();
    return {base_, offset + allocation.size};
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
    // All granules but an allocation's last are full, and a red zone of empty ones follows: it is one
    // allocation if every granule before the last is full.
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
  using Ranges = std::map<std::size_t, std::size_t>;  // offset -> bytes
  struct Allocation {
    std::size_t size;   // with the red zone behind it
    std::size_t bytes;  // that were asked for
    int device;
    bool is_written = false;      // as a whole
    std::vector<bool> written{};  // bytes that are, if it is not written as a whole; empty: none
    std::size_t missing = 0;      // bytes that are not
  };
  using Allocations = std::map<std::size_t, Allocation>;  // by offset

  /// The allocation that these bytes lie in, and how far from its beginning.
  std::pair<Allocation*, std::size_t> find(const void* address, std::size_t bytes) {
    if (!is_allocated(address, bytes)) return {nullptr, 0};
    const std::size_t offset = std::uintptr_t(address) - std::uintptr_t(base_);
    const auto found = std::prev(allocations_.upper_bound(offset));
    return {&found->second, offset - found->first};
  }

  void* take(Ranges::iterator gap, std::size_t needed, std::size_t bytes) {
    const auto [offset, size] = *gap;
    gaps_.erase(gap);
    if (size > needed) gaps_[offset + needed] = size - needed;
    allocations_.emplace(offset, Allocation{needed, bytes, current_device()});
    for (std::size_t done = 0; done < bytes; done += kGlobalAlignment)
      valid_bytes_[(offset + done) / kGlobalAlignment] =
          std::uint16_t(std::min(kGlobalAlignment, bytes - done));
    return std::memset(base_ + offset, 0xff, bytes);
  }

  static void complete(Allocation& allocation) {
    allocation.is_written = true;
    allocation.written = {};
  }

  /// Joins a gap with the next one if they touch.
  Ranges::iterator merge(Ranges::iterator gap) {
    const auto next = std::next(gap);
    if (next == gaps_.end() || gap->first + gap->second != next->first) return gap;
    gap->second += next->second;
    gaps_.erase(next);
    return gap;
  }

  unsigned char* base_;
  std::uint16_t* valid_bytes_;  // of each granule of kGlobalAlignment bytes
  Ranges gaps_;
  Allocations allocations_;
};

std::mutex arena_mutex;
thread_local constinit int device_in_use = 0;

/// Lives as long as the process: buffers with static lifetime are freed late.
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

}  // namespace flashbook::sim
