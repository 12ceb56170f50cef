/// \file
/// The host's memory. Linux promises memory that it does not have: a program that allocates too much is
/// killed when it writes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace flashbook::device {

/// Returns the number of bytes that this process can still use without being killed: limited by the machine's
/// free memory and by its container and all enclosing ones (control groups). 2^62 if the system does not
/// report it. `root` is the directory of the system's files, for tests.
int64_t host_memory_available(const std::filesystem::path& root = "/");

/// Allocates memory on a 256-byte boundary, like device memory. Throws DeviceError if not enough is
/// available.
void* allocate_host_memory(std::size_t bytes);

/// Frees it; null is allowed.
void free_host_memory(void* address);

}  // namespace flashbook::device
