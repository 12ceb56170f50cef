/// \file
/// What a tensor core computes. Internal to the simulator: mma.h and wmma.h say how registers hold it.
#pragma once
#include <cstdint>

#include "common/numeric/dtype.h"

namespace flashbook::sim {

/// d += a * b for matrices of 16-bit elements of `type` (f16 or bf16).
///
/// In plain float32, products one after the other; or, with Options::exact, as an H200 does it. That is the
/// algorithm of MMA-Sim (arXiv 2511.10909): the 16 products and the accumulator are aligned to the largest
/// exponent among them and cut off after 25 fraction bits, added without any error, and the sum is cut off
/// to a float. So a tensor core never rounds up, and drops what is 2^25 times smaller than the largest term.
void multiply_accumulate(DType type, const uint16_t (&a)[16][16], const uint16_t (&b)[16][8],
                         float (&d)[16][8]);

}  // namespace flashbook::sim
