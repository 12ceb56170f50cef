#include "common/simulator/block/addresses.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "common/simulator/block/static_shared.h"
#include "common/simulator/block/worker.h"
#include "common/simulator/describe.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"

namespace flashbook::sim {
namespace {

/// Returns a page's size: shared memory is rounded up to whole pages so that it can be protected.
std::size_t page() {
  static const auto bytes = std::size_t(sysconf(_SC_PAGESIZE));
  return bytes;
}
std::size_t whole_pages() { return (kMaxSharedBytes + page() - 1) / page() * page(); }

/// The shared memory of every OS thread.
struct All {
  std::mutex mutex;  ///< the mutex also protects the state that `enter_grid` changes
  std::vector<const SharedMemory*> memories;
};

All& all() {
  static All& all = *new All;
  return all;
}

bool lies_in(const void* address, std::size_t bytes, const unsigned char* begin, std::size_t size) {
  const std::uintptr_t offset = std::uintptr_t(address) - std::uintptr_t(begin);
  return offset < size && bytes <= size - offset;
}

// The reports are separate functions that never return, like those in barriers.cpp.

[[noreturn]] void misaligned(const char* what, const void* address, std::size_t alignment, Location where) {
  throw Error(describe_call(what, where) + ": misaligned address, " +
              running_worker(what, where).memory.describe(address) + " is not a multiple of " +
              std::to_string(alignment));
}

[[noreturn]] void outside(const char* what, const void* address, std::size_t bytes, const char* memory,
                          Location where) {
  throw Error(describe_call(what, where) + ": " + std::to_string(bytes) + " bytes at " +
              running_worker(what, where).memory.describe(address) + " are not in " + memory);
}

void require_aligned(const char* what, const void* address, std::size_t alignment, Location where) {
  if (std::uintptr_t(address) % alignment != 0) misaligned(what, address, alignment, where);
}

}  // namespace

SharedMemory::SharedMemory() : data_(static_cast<unsigned char*>(std::aligned_alloc(page(), whole_pages()))) {
  if (!data_) throw std::bad_alloc();
  const std::lock_guard lock(all().mutex);
  all().memories.push_back(this);
}

SharedMemory::~SharedMemory() {
  const std::lock_guard lock(all().mutex);
  std::erase(all().memories, this);
}

void SharedMemory::enter_grid(std::size_t dynamic_bytes) {
  const std::lock_guard lock(all().mutex);
  bytes_ = dynamic_bytes;
  arrays_ = static_shared_arrays();
}

void SharedMemory::begin_block() {
  std::memset(data_.get(), 0xff, bytes_);
  for (const auto& array : arrays_) std::memset(array.data(), 0xff, array.size());
}

void SharedMemory::put_aside() {
  aside_.clear();
  for (const auto& array : arrays_) aside_.insert(aside_.end(), array.begin(), array.end());
}

void SharedMemory::bring_back() {
  const unsigned char* next = aside_.data();
  for (const auto& array : arrays_) {
    std::memcpy(array.data(), next, array.size());
    next += array.size();
  }
}

bool SharedMemory::contains(const void* address, std::size_t bytes) const {
  if (lies_in(address, bytes, data_.get(), bytes_)) return true;
  for (const auto& array : arrays_)
    if (lies_in(address, bytes, array.data(), array.size())) return true;
  return !static_shared_arrays_are_known() && !lies_in(address, bytes, data_.get(), kMaxSharedBytes) &&
         !is_global(address);
}

std::string SharedMemory::describe_of_others(const void* address) {
  const std::lock_guard lock(all().mutex);
  const SharedMemory* const own = current_worker ? &current_worker->memory : nullptr;
  for (const SharedMemory* other : all().memories) {
    if (other == own) continue;
    const auto holds = [&](std::span<unsigned char> array) {
      return lies_in(address, 1, array.data(), array.size());
    };
    if (holds(other->dynamic()) || std::any_of(other->arrays_.begin(), other->arrays_.end(), holds))
      return "another block's shared memory";
  }
  return "";
}

std::string SharedMemory::describe(const void* address) const {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%p", address);
  for (const auto& array : arrays_)
    if (lies_in(address, 1, array.data(), array.size()))
      return "a __shared__ array + " +
             std::to_string(static_cast<const unsigned char*>(address) - array.data()) + " of " +
             std::to_string(array.size()) + " bytes (" + digits + ")";
  const auto offset = std::intptr_t(address) - std::intptr_t(data_.get());
  if (const std::string shared = describe_of_others(address);
      !shared.empty() && std::uintptr_t(offset) >= bytes_)
    return shared;
  // A wrong index usually ends up just before or after a block's shared memory.
  if (bytes_ > 0 && offset >= -std::intptr_t(kMaxSharedBytes) && offset < 2 * std::intptr_t(kMaxSharedBytes))
    return "dynamic shared memory" + std::string(offset < 0 ? " - " : " + ") +
           std::to_string(offset < 0 ? -offset : offset) + " of " + std::to_string(bytes_) + " bytes";
  if (is_global(address)) return describe_global(address);
  // Every byte of an uninitialised pointer is 0xff. Adding an index moves it, possibly past the end.
  constexpr std::intptr_t kNear = 1 << 24;
  const bool is_unset = address && std::intptr_t(address) > -kNear && std::intptr_t(address) < kNear;
  return std::string("address ") + digits +
         (is_unset ? " (near null: the pointer is null or was never written; is there a barrier between the "
                     "thread that sets it and the thread that dereferences it?)"
                   : "");
}

void require_shared(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where) {
  require_aligned(what, address, alignment, where);
  if (!running_worker(what, where).memory.contains(address, bytes))
    outside(what, address, bytes, "the block's shared memory", where);
}

void require_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where) {
  require_aligned(what, address, alignment, where);
  if (bytes > 0 && !is_allocated(address, bytes))
    outside(what, address, bytes, "an allocation of device memory", where);
}

void require_shared_or_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                              Location where) {
  require_aligned(what, address, alignment, where);
  if (!is_allocated(address, bytes) && !running_worker(what, where).memory.contains(address, bytes))
    outside(what, address, bytes, "the block's shared memory or an allocation of device memory", where);
}

}  // namespace flashbook::sim
