/// \file
/// Finds a kernel's `__shared__` arrays, to poison them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flashbook::sim {

/// Returns the calling OS thread's copies of all `__shared__` arrays in this program.
///
/// They are thread-local variables whose symbols carry a tag (language.h); the program's symbol table gives
/// their offsets in a thread's memory. None are found, and so none are poisoned, in stripped programs, in
/// kernels of shared libraries, and on systems without ELF.
std::vector<std::span<unsigned char>> static_shared_arrays();

/// Returns the total size of the `__shared__` arrays in the kernel at this address, excluding those of
/// functions that it calls; 0 if unknown.
std::size_t static_shared_bytes_of(const void* kernel);

/// Returns whether the arrays can be found. If so, an address outside them is in no `__shared__` array.
bool static_shared_arrays_are_known();

/// The code of a function in the program. Its start is an offset, as in source_lines.h.
struct Function {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

/// Returns the function that contains this code; empty if unknown.
Function function_of(std::uintptr_t offset);

/// Returns the calling OS thread's thread-local memory for the program itself, without shared libraries;
/// empty if unknown.
std::span<unsigned char> own_thread_local_memory();

}  // namespace flashbook::sim
