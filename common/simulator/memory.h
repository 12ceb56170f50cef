/// \file
/// The simulator's device memory: a single address range, so a comparison tells whether an address is global.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flashbook::sim {

/// The size of the address range. Only pages that are written use host memory.
constexpr std::size_t kGlobalBytes =
    sizeof(void*) == 4 ? std::size_t(48) << 20 : std::size_t(uint64_t(256) << 30);

/// The alignment of allocations, as in cudaMalloc.
constexpr std::size_t kGlobalAlignment = 256;

/// The minimum number of bytes between two allocations. Accessing these bytes is an error, so an
/// out-of-bounds index (a wrong page number, for example) does not reach another allocation.
constexpr std::size_t kGuardBytes = std::size_t(sizeof(void*) == 4 ? 1 : 1024) << 16;

/// Returns the device on which the calling thread allocates memory and launches kernels; initially 0.
int current_device();
void set_current_device(int device);
/// Returns the device on which an address was allocated; -1 if it is not allocated.
int device_of(const void* address);

/// Allocates device memory and sets every byte to 0xff, which is NaN in every type. Freed addresses are
/// reused once all others have been used. Throws Error if no gap is large enough.
void* allocate_global(std::size_t bytes);

/// Frees an allocation and its pages; null is allowed. Throws Error if `address` is not the start of an
/// allocation.
void free_global(void* address);

/// Returns the size of the largest allocation that is currently possible.
std::size_t largest_global_gap();

/// Returns the start of the device memory.
std::uintptr_t global_memory_begin();
/// Returns the memory from the start of the first allocation to the end of the last one.
std::span<const unsigned char> global_memory_in_use();

/// Returns whether the address is in the range of device memory, allocated or not.
bool is_global(const void* address);

// The following functions track which bytes have been written since they were allocated. The traced mode
// calls them when a read finds 0xff.

/// Marks these bytes as written if they are in one allocation.
void note_written(const void* address, std::size_t bytes);
/// Marks all allocations as written, after code that does not report its writes.
void note_all_written();
/// Marks all bytes of the allocation that begins here as unwritten.
void note_unwritten(const void* address);
/// Returns whether one of these bytes has been written, or the bytes are not all in one allocation.
bool is_written(const void* address, std::size_t bytes);
/// Returns the allocations that have not been written completely.
std::vector<std::span<const unsigned char>> incomplete_allocations();
/// Returns, for each granule of kGlobalAlignment bytes from the start of device memory, the number of its
/// bytes that are allocated. These are always its first bytes.
const std::uint16_t* allocated_of_granules();

/// Returns whether all bytes are in a single allocation that has not been freed.
bool is_allocated(const void* address, std::size_t bytes);

/// Returns whether both addresses are in the same allocation.
bool is_same_allocation(const void* a, const void* b);

/// Returns a checksum over all allocations, except for the 8 bytes at an address.
uint64_t checksum_of_allocations(const void* except);

/// Describes where bytes between allocations have been written, on systems that cannot prevent such writes;
/// empty if there are none, or if the processor prevents them.
std::string describe_written_outside();

/// Returns "global memory 0x7f00 (4 bytes past the end of an allocation of 400 bytes)", or similar.
std::string describe_global(const void* address);

}  // namespace flashbook::sim
