/// \file
/// The simulator's device memory: one range of addresses, so that "is this global memory?" is a comparison.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace flashbook::sim {

/// Address space of the device memory. Only what is written takes memory of the host.
constexpr std::size_t kGlobalBytes =
    sizeof(void*) == 4 ? std::size_t(48) << 20 : std::size_t(uint64_t(256) << 30);

/// Allocations begin at multiples of this, as cudaMalloc's do.
constexpr std::size_t kGlobalAlignment = 256;

/// Between two allocations lie at least so many bytes that nobody may touch: an index that leaves its
/// allocation, by a page number for example, leads to none of the others.
constexpr std::size_t kGuardBytes = std::size_t(sizeof(void*) == 4 ? 1 : 1024) << 16;

/// The device whose memory the calling thread allocates, and on which it launches kernels: 0 at first.
int current_device();
void set_current_device(int device);
/// The device that an allocated address belongs to; -1 if it lies in no allocation.
int device_of(const void* address);

/// Device memory, every byte 0xff: NaN in every type. What has been freed is used again when all other
/// addresses have been. Throws Error if no gap is large enough.
void* allocate_global(std::size_t bytes);

/// Gives an allocation and its pages back; null is fine. Throws Error if `address` is not the beginning of
/// one.
void free_global(void* address);

/// The largest allocation that is possible now.
std::size_t largest_global_gap();

/// Where the device memory begins.
std::uintptr_t global_memory_begin();
/// From the beginning of the first allocation to the end of the last one.
std::span<const unsigned char> global_memory_in_use();

/// Whether the address lies in the range of the device memory, allocated or not.
bool is_global(const void* address);

// What has been written since it was allocated: for the traced mode, which asks at reads that find 0xff.

/// These bytes of an allocation, if they lie in one.
void note_written(const void* address, std::size_t bytes);
/// Everything that is allocated: somebody may have written who tells nobody.
void note_all_written();
/// Nothing of the allocation that begins here.
void note_unwritten(const void* address);
/// Whether somebody has written one of these bytes, or they lie in no allocation.
bool is_written(const void* address, std::size_t bytes);
/// The allocations that have not been written as a whole.
std::vector<std::span<const unsigned char>> incomplete_allocations();
/// How many bytes of each granule of kGlobalAlignment bytes are allocated, from the beginning of the device
/// memory on; they are its first.
const std::uint16_t* allocated_of_granules();

/// Whether every byte lies in a single allocation that has not been freed.
bool is_allocated(const void* address, std::size_t bytes);

/// Whether both addresses lie in the same allocation.
bool is_same_allocation(const void* a, const void* b);

/// A number that depends on all that is allocated, but for the 8 bytes around an address.
uint64_t checksum_of_allocations(const void* except);

/// Where somebody has written between the allocations, for who cannot stop it: empty if nobody has, or where
/// the processor refuses it.
std::string describe_written_outside();

/// "global memory 0x7f00 (4 bytes behind an allocation of 400 bytes)", of any address in its range.
std::string describe_global(const void* address);

}  // namespace flashbook::sim
