/// \file
/// The host's memory, which Linux hands out without having it: a program that asks for too much is killed
/// when it writes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace flashbook::device {

/// Bytes that this process can still use without being killed for it: what the machine has, and what the
/// limits of its container and of all that is around it leave (control groups). 2^62 where
/// the system does not say. `root` is where the system's files are, for tests.
int64_t host_memory_available(const std::filesystem::path& root = "/");

/// Allocates memory on a 256-byte boundary, as device memory is. Throws DeviceError if that much is not
/// available.
void* allocate_host_memory(std::size_t bytes);

/// Frees it; null is fine.
void free_host_memory(void* address);

}  // namespace flashbook::device
