/// \file
/// Allows a host compiler to read a kernel: the simulator's replacement for <cuda_runtime.h>.
#pragma once
#include <cstddef>

#include "common/simulator/atomics.h"
#include "common/simulator/barrier.h"
#include "common/simulator/clock.h"
#include "common/simulator/cp_async.h"
#include "common/simulator/half.h"
#include "common/simulator/instead.h"
#include "common/simulator/intrinsics.h"
#include "common/simulator/language.h"
#include "common/simulator/launch.h"
#include "common/simulator/ldmatrix.h"
#include "common/simulator/math.h"
#include "common/simulator/mbarrier.h"
#include "common/simulator/mma.h"
#include "common/simulator/registers.h"
#include "common/simulator/tma.h"
#include "common/simulator/warp.h"
#include "common/simulator/wgmma.h"

namespace flashbook::sim {

/// Returns the argument of alignas: a type or a number.
template <typename T>
constexpr std::size_t alignment() {
  return alignof(T);
}
template <std::size_t kBytes>
constexpr std::size_t alignment() {
  return kBytes;
}

/// Returns whether source text begins with "".
constexpr bool is_empty_text(const char* source) { return source[0] == '"' && source[1] == '"'; }

}  // namespace flashbook::sim

// These are keywords that nvcc accepts in more places than g++, or that the simulator supports only in part.
// Headers included after this file see these macros; they do not change the meaning of standard C++.

/// g++ rejects alignas in the middle of a declaration, but not this attribute.
#define alignas(...) __attribute__((aligned(::flashbook::sim::alignment<__VA_ARGS__>())))

/// Only an empty asm statement, a compiler barrier, can run here. `volatile(` occurs only after asm.
#define FLASHBOOK_NO_PTX(...)                                  \
  static_assert(::flashbook::sim::is_empty_text(#__VA_ARGS__), \
                "the simulator cannot run inline PTX: use the functions of common/ptx")
#define asm(...)        \
  __asm__(__VA_ARGS__); \
  FLASHBOOK_NO_PTX(__VA_ARGS__)
#define volatile(...)    \
  volatile(__VA_ARGS__); \
  FLASHBOOK_NO_PTX(__VA_ARGS__)
