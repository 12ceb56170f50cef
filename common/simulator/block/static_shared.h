/// \file
/// Finding a kernel's `__shared__` arrays, to poison them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flashbook::sim {

/// The calling OS thread's copies of every `__shared__` array in this program.
///
/// They are thread-local variables whose symbols carry a tag (language.h); the program's own symbol table
/// says where in a thread's memory they lie. Nothing is found, and so nothing poisoned, if the program is
/// stripped, if a kernel lies in a shared library, and on systems without ELF.
std::vector<std::span<unsigned char>> static_shared_arrays();

/// Bytes of the `__shared__` arrays in the kernel whose code begins here; those of functions that it calls
/// are not counted. 0 if nothing is known.
std::size_t static_shared_bytes_of(const void* kernel);

/// Whether they can be found at all: an address that is in none of them is then in no `__shared__` array.
bool static_shared_arrays_are_known();

/// The code of a function of the program, from its first byte on, as source_lines.h counts it.
struct Function {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

/// The function that code belongs to; empty where that is not known.
Function function_of(std::uintptr_t offset);

/// The thread-local memory that the calling OS thread has for the program itself, without its libraries;
/// empty where that is not known.
std::span<unsigned char> own_thread_local_memory();

}  // namespace flashbook::sim
