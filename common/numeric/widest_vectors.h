/// \file
/// Uses the widest vectors of this processor, chosen at run time and not at build time.
#pragma once

namespace flashbook {

/// A width of vectors for which code is compiled.
template <int kFloats, int kNames>
struct VectorUnit {
  static constexpr int kLanes = kFloats;     ///< number of floats in a vector
  static constexpr int kRegisters = kNames;  ///< number of vectors that fit in a core's registers

  /// A vector of kLanes floats, added, multiplied and compared lane by lane. Both g++ and clang++ support
  /// such types.
  struct Types {
    typedef float Floats __attribute__((vector_size(kFloats * 4)));
    typedef int Ints __attribute__((
        vector_size(kFloats * 4)));  ///< an integer vector of the same width, for results of comparisons
  };
};

namespace vectors {

/// Runs `body` compiled for vectors of 4 floats, which every processor with vectors supports.
template <typename Body>
inline void run_with_4_lanes(const Body& body) {
  body.template operator()<VectorUnit<4, 16>>();
}

#if defined(__x86_64__)

/// Runs `body` compiled for vectors of 8 floats, with AVX2 and FMA.
template <typename Body>
[[gnu::target("arch=x86-64-v3"), gnu::noinline]] inline void run_with_8_lanes(const Body& body) {
  body.template operator()<VectorUnit<8, 16>>();
}

/// Runs `body` compiled for vectors of 16 floats, with AVX-512.
template <typename Body>
[[gnu::target("arch=x86-64-v4"), gnu::noinline]] inline void run_with_16_lanes(const Body& body) {
  body.template operator()<VectorUnit<16, 32>>();
}

#endif

}  // namespace vectors

/// Calls `body.operator()<Unit>()` once, compiled for the widest vectors of the current processor. `body` and
/// all functions that it calls in its loops are always_inline: only inlined code is compiled for these
/// vectors. The file must be compiled without -march.
template <typename Body>
inline void with_widest_vectors(const Body& body) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return vectors::run_with_16_lanes(body);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return vectors::run_with_8_lanes(body);
#endif
  vectors::run_with_4_lanes(body);
}

}  // namespace flashbook
