/// \file
/// What a tensor core computes. Internal to the simulator: mma.h, wmma.h and wgmma.h say how registers and
/// shared memory hold it.
#pragma once
#include <cstdint>

#include "common/numeric/dtype.h"

namespace flashbook::sim {

/// What one instruction multiplies at most.
constexpr int kMaxRows = 64, kMaxColumns = 256, kMaxInner = 32;

/// d += a * b for the values behind elements of `type` (f16, bf16 or e4m3): a [rows][inner], b
/// [inner][columns], d [rows][columns]. rows is a multiple of 4, columns of 8; inner is 16, of e4m3 32.
///
/// In plain float32, products one after the other; or, with Options::exact, as an H200 does it. That is the
/// algorithm of MMA-Sim (arXiv 2511.10909): the products and the accumulator are aligned to the largest
/// exponent among them and cut off after 25 fraction bits, of e4m3 13; added without any error; and the sum
/// is cut off to a float, of e4m3 to one of 13 fraction bits. So a tensor core never rounds up, and drops
/// what is 2^25 (e4m3: 2^13) times smaller than the largest term. One instruction adds all its products at
/// once; a longer dot product is a chain of them, cut off after each.
///
/// Exact results are equal to an H200's to the bit, for all that tests/simulator/golden_h200.txt has: normal
/// and subnormal operands and results, zeros, sums that cancel, and sums that become infinite. Not held
/// against the hardware: operands that are infinite or NaN (here every NaN is 0x7fffffff), and the sign of a
/// sum that is zero (here +0).
void multiply_accumulate(DType type, int rows, int columns, int inner, const float* a, const float* b,
                         float* d);

/// The same for 16-bit elements as they are in registers: the shape of mma.sync.
void multiply_accumulate(DType type, const uint16_t (&a)[16][16], const uint16_t (&b)[16][8],
                         float (&d)[16][8]);

}  // namespace flashbook::sim
