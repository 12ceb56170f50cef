/// \file
/// Finds a kernel's `__launch_bounds__` for its launch.
#pragma once

namespace flashbook::sim {

/// The bounds of a kernel; a bound that the kernel does not declare is 0.
struct LaunchBounds {
  int threads = 0;  ///< maximum number of threads per block
  int blocks = 0;   ///< minimum number of blocks resident per multiprocessor
};

/// Returns the bounds as one number. With `__attribute__((patchable_function_entry))`, g++ leaves this many
/// bytes free before a function, and the linker keeps a table of their addresses. So this attribute accepts a
/// template's constants and can be read at run time (language.h).
constexpr int packed_launch_bounds(int threads, int blocks = 0, int = 0) { return threads + 1024 * blocks; }

/// Returns the bounds of the kernel at this address. They are unknown in programs compiled with clang++.
LaunchBounds launch_bounds_of(const void* kernel);

}  // namespace flashbook::sim
