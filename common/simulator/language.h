/// \file
/// CUDA's additions to the C++ language, which let a host compiler accept a kernel unchanged.
#pragma once
#include "common/numeric/float_formats.h"
#include "common/simulator/launch_bounds.h"
#include "common/simulator/parameters.h"
#include "common/simulator/vector_types.h"

// A kernel is an ordinary function here. CUDA's keywords have to be macros.
#if defined(__SANITIZE_THREAD__)
#define __global__ __attribute__((flatten))  // tells the traced mode which kernel called a helper
#else
#define __global__
#endif
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__  // empty because libstdc++ writes __attribute__((__noinline__))
#define __constant__
#define __managed__
#define __maxnreg__(n)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition) ((void)0)
#define __CUDA_ARCH__ 900
/// If the keyword is in the wrong place, the compiler's message contains this name.
#define __grid_constant__ ::grid_constant_must_precede_the_type,
using grid_constant_must_precede_the_type = flashbook::sim::GridConstant;
#define __cluster_dims__(...) \
  _Pragma("GCC error \"the simulator does not run clusters: leave out __cluster_dims__\"")

/// Launches with more threads than the bounds allow are refused (launch_bounds.h). A kernel with bounds is
/// static because g++ 12 emits a table for it that the linker cannot merge with another file's copy. clang++
/// does not accept constants that depend on template parameters here.
#if defined(__GNUC__) && !defined(__clang__) && defined(__ELF__)
#define __launch_bounds__(...)                                                                             \
  static                                                                                                   \
      __attribute__((unused, patchable_function_entry(::flashbook::sim::packed_launch_bounds(__VA_ARGS__), \
                                                      ::flashbook::sim::packed_launch_bounds(__VA_ARGS__))))
#else
#define __launch_bounds__(...)
#endif

/// `__shared__ float tile[64][33];` in a kernel is one array per OS thread, which runs one block at a time.
/// The tag becomes part of the array's symbol, by which the simulator finds the array to poison it before
/// every block. `extern __shared__` defines no array, so the tag appears in the linker's message about the
/// undefined symbol. `used` keeps the compiler from assuming that no other code writes the array.
#if defined(__EMSCRIPTEN__)
#define __shared__ \
  __attribute__((section("cuda_shared"), used)) static  // one copy per OS thread; the linker marks the ends
#else
#define __shared__ \
  __attribute__((abi_tag("use_dynamic_shared_T_in_place_of_extern_shared"), used)) thread_local
#endif

using __half = flashbook::f16;
using __nv_bfloat16 = flashbook::bf16;
using __nv_fp8_e4m3 = flashbook::e4m3;

inline thread_local constinit uint3 threadIdx{};
inline thread_local constinit uint3 blockIdx{};
inline thread_local constinit dim3 blockDim{};
inline thread_local constinit dim3 gridDim{};
constexpr int warpSize = 32;
