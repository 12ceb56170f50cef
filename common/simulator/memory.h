/// \file
/// The simulator's device memory: one address range, so that "is this global memory?" is a comparison.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flashbook::sim {

/// Size of the address range. Only pages that are written use host memory.
constexpr std::size_t kGlobalBytes =
    sizeof(void*) == 4 ? std::size_t(48) << 20 : std::size_t(uint64_t(256) << 30);

/// Alignment of allocations, as in cudaMalloc.
constexpr std::size_t kGlobalAlignment = 256;

/// Minimum number of bytes between two allocations that must not be touched, so that an index out of bounds,
/// a wrong page number for example, does not reach another allocation.
constexpr std::size_t kGuardBytes = std::size_t(sizeof(void*) == 4 ? 1 : 1024) << 16;

/// The device on which the calling thread allocates memory and launches kernels; initially 0.
int current_device();
void set_current_device(int device);
/// The device that an address was allocated on; -1 if it is not allocated.
int device_of(const void* address);

/// Allocates device memory with every byte 0xff, which is NaN in every type. Freed addresses are reused once
/// all others have been used. Throws Error if no gap is large enough.
void* allocate_global(std::size_t bytes);

/// Frees an allocation and its pages; null is allowed. Throws Error if `address` is not the start of an
/// allocation.
void free_global(void* address);

/// The largest allocation that is possible now.
std::size_t largest_global_gap();

/// The start of the device memory.
std::uintptr_t global_memory_begin();
/// From the start of the first allocation to the end of the last one.
std::span<const unsigned char> global_memory_in_use();

/// Whether the address is in the range of device memory, allocated or not.
bool is_global(const void* address);

// Which bytes have been written since they were allocated: for the traced mode, which asks when a read finds
// 0xff.

/// Marks these bytes as written if they are in one allocation.
void note_written(const void* address, std::size_t bytes);
/// Marks all allocations as written, after something that does not report its writes.
void note_all_written();
/// Marks all bytes of the allocation that begins here as not written.
void note_unwritten(const void* address);
/// Whether one of these bytes has been written, or they are not in one allocation.
bool is_written(const void* address, std::size_t bytes);
/// The allocations that have not been written completely.
std::vector<std::span<const unsigned char>> incomplete_allocations();
/// For each granule of kGlobalAlignment bytes, from the start of device memory: how many of its bytes are
/// allocated. These are its first ones.
const std::uint16_t* allocated_of_granules();

/// Whether all bytes are in a single allocation that has not been freed.
bool is_allocated(const void* address, std::size_t bytes);

/// Whether both addresses are in the same allocation.
bool is_same_allocation(const void* a, const void* b);

/// A checksum of all allocations except the 8 bytes at an address.
uint64_t checksum_of_allocations(const void* except);

/// Where bytes between allocations have been written, on systems that cannot prevent it. Empty if there are
/// none, or if the processor prevents it.
std::string describe_written_outside();

/// "global memory 0x7f00 (4 bytes behind an allocation of 400 bytes)", for any address in its range.
std::string describe_global(const void* address);

}  // namespace flashbook::sim
