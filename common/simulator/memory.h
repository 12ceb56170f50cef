/// \file
/// The simulator's device memory: one range of addresses, so that "is this global memory?" is a comparison.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace flashbook::sim {

/// Address space of the device memory. Only what is written takes memory of the host.
constexpr std::size_t kGlobalBytes = std::size_t(64) << 30;

/// Allocations begin at multiples of this, as cudaMalloc's do, and at least as many bytes lie between two of
/// them.
constexpr std::size_t kGlobalAlignment = 256;

/// Device memory, every byte 0xff: NaN in every type. Throws Error if no gap is large enough.
void* allocate_global(std::size_t bytes);

/// Gives an allocation and its pages back; null is fine. Throws Error if `address` is not the beginning of
/// one.
void free_global(void* address);

/// The largest allocation that is possible now.
std::size_t largest_global_gap();

/// From the beginning of the device memory to the end of the last allocation.
std::span<const unsigned char> global_memory_in_use();

/// Whether the address lies in the range of the device memory, allocated or not.
bool is_global(const void* address);

/// How many bytes of each granule of kGlobalAlignment bytes are allocated, from the beginning of the device
/// memory on; they are its first.
const std::uint16_t* allocated_of_granules();

/// Whether every byte lies in a single allocation that has not been freed.
bool is_allocated(const void* address, std::size_t bytes);

}  // namespace flashbook::sim
