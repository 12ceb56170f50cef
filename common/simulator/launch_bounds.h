/// \file
/// What a kernel's `__launch_bounds__` say, for those who launch it.
#pragma once

namespace flashbook::sim {

/// The bounds of a kernel; 0 where it names none.
struct LaunchBounds {
  int threads = 0;  ///< that a block has at most
  int blocks = 0;   ///< that a multiprocessor runs at least, at one time
};

/// The bounds as one number. g++ leaves so many bytes free before a function that carries
/// `__attribute__((patchable_function_entry))`, and the linker keeps a table of where they begin: an
/// attribute that takes a template's constants and can be read when the program runs. (language.h)
constexpr int packed_launch_bounds(int threads, int blocks = 0, int = 0) { return threads + 1024 * blocks; }

/// The bounds of the kernel whose code begins here. Programs that clang++ has compiled know none.
LaunchBounds launch_bounds_of(const void* kernel);

}  // namespace flashbook::sim
