/// \file
/// Included before everything else in kernel files that are compiled for the traced mode.
///
/// -fsanitize=thread reports loads and stores, but not calls of memcpy, memmove and memset. This file
/// replaces them with functions that report their accesses, whether a kernel calls them itself or through
/// std::copy, std::fill and similar functions.
#pragma once

#ifdef __clang__

// clang++ compiles all of these to calls, including copies of structs.
asm(".set memcpy, __tsan_memcpy\n"
    ".set memmove, __tsan_memmove\n"
    ".set memset, __tsan_memset\n");

#else

#include <cstddef>
#include <cstring>

extern "C" {
void* __tsan_memcpy(void* target, const void* source, std::size_t bytes);
void* __tsan_memmove(void* target, const void* source, std::size_t bytes);
void* __tsan_memset(void* target, int value, std::size_t bytes);
}

// g++ turns short calls into loads and stores without reporting them, unless they are a single load and
// store. (It does report copies of structs, and may then call the library's memcpy.)
#define FLASHBOOK_IS_ONE_ACCESS(bytes) \
  (__builtin_constant_p(bytes) && (bytes) <= 16 && ((bytes) & ((bytes)-1)) == 0)
#define FLASHBOOK_INSTEAD \
  extern "C" __inline __attribute__((__always_inline__, __gnu_inline__, __artificial__))

FLASHBOOK_INSTEAD void* memcpy(void* __restrict target, const void* __restrict source,
                               std::size_t bytes) noexcept {
  return FLASHBOOK_IS_ONE_ACCESS(bytes) ? __builtin_memcpy(target, source, bytes)
                                        : __tsan_memcpy(target, source, bytes);
}
FLASHBOOK_INSTEAD void* memmove(void* target, const void* source, std::size_t bytes) noexcept {
  return FLASHBOOK_IS_ONE_ACCESS(bytes) ? __builtin_memmove(target, source, bytes)
                                        : __tsan_memmove(target, source, bytes);
}
FLASHBOOK_INSTEAD void* memset(void* target, int value, std::size_t bytes) noexcept {
  return FLASHBOOK_IS_ONE_ACCESS(bytes) ? __builtin_memset(target, value, bytes)
                                        : __tsan_memset(target, value, bytes);
}

#undef FLASHBOOK_INSTEAD
#undef FLASHBOOK_IS_ONE_ACCESS

// The names that the C++ library uses.
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset

#endif
