/// \file
/// A kernel's helpers in another file, one of which races.
#pragma once
#include "common/device/kernel.h"

namespace flashbook {

inline __device__ void write_one_place(float* out) { *out = float(threadIdx.x); }

inline __device__ void write_by_two_helpers(float* out) {
  for (int i = 0; i < 2; ++i) write_one_place(out + i);
}

[[gnu::noinline]] __device__ inline void write_by_a_call(float* out) {
  for (int i = 0; i < 2; ++i) write_one_place(out + i);
}

[[gnu::noinline]] __device__ inline void write_by_two_calls(float* out) { write_by_a_call(out + 1); }

}  // namespace flashbook
