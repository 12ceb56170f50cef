/// \file
/// The machine operations on which device.h relies. simulated.cpp and cuda.cu implement them; a build
/// contains one of the two.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "common/device/ranks.h"

namespace flashbook::device::backend {

/// Allocates device memory; never returns null. Throws UsageError if there is not enough.
void* allocate(std::size_t bytes);

void free(void* address) noexcept;

/// Copies between host and device, in either direction, after all earlier work has finished.
void copy(void* target, const void* source, std::size_t bytes);

/// Returns why NCCL cannot serve this many ranks; empty if it can.
std::string why_not_nccl(int ranks);

/// Returns the version of NCCL: "2.28.9"; empty if there is none.
std::string nccl_version();

/// Implements run_ranks with Transport::nccl. Call it only if why_not_nccl returns an empty string.
void run_nccl_ranks(int count, const std::function<void(Rank&)>& body);

/// Sets every byte of device memory to `byte`, which marks memory that has never been written.
void poison(void* address, unsigned char byte, std::size_t bytes);

}  // namespace flashbook::device::backend
