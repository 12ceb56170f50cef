/// \file
/// The host's memory. Linux overcommits memory: a program that allocates too much is killed when it writes to
/// that memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace flashbook::device {

/// Returns the number of bytes that this process can still use without being killed. The limits are the
/// machine's free memory, its container, and all enclosing ones (control groups). Returns 2^62 if the system
/// does not report them. `root` is the directory of the system's files, for tests.
int64_t host_memory_available(const std::filesystem::path& root = "/");

/// Allocates memory on a 256-byte boundary, like device memory. Throws DeviceError if not enough is
/// available.
void* allocate_host_memory(std::size_t bytes);

/// Frees such memory; null is allowed.
void free_host_memory(void* address);

}  // namespace flashbook::device
