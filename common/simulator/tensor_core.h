/// \file
/// The arithmetic of a tensor core. Internal to the simulator: mma.h, wmma.h and wgmma.h define the layouts
/// in registers and shared memory.
#pragma once
#include <cstdint>

#include "common/numeric/dtype.h"

namespace flashbook::sim {

/// The size limits of one instruction's product.
constexpr int kMaxRows = 64, kMaxColumns = 256, kMaxInner = 32;

/// Computes d += a * b for values of `type` (f16, bf16 or e4m3): a is [rows][inner], b [inner][columns], d
/// [rows][columns]. rows is a multiple of 4, columns a multiple of 8; inner is 16, or 32 for e4m3.
///
/// Adds the products one after another in plain float32 or, with Options::exact, as an H200 does. That is the
/// algorithm of MMA-Sim (arXiv 2511.10909): the products and the accumulator are aligned to their largest
/// exponent and truncated to 25 fraction bits (13 for e4m3); they are added exactly; and the sum is truncated
/// to a float, or to one with 13 fraction bits for e4m3. So a tensor core never rounds up, and drops terms
/// 2^25 (e4m3: 2^13) times smaller than the largest. One instruction adds all its products at once; a longer
/// dot product is a chain of instructions, with a truncation after each.
///
/// Exact results match an H200's bit for bit for everything in tests/simulator/golden_h200.txt: normal and
/// subnormal operands and results, zeros, sums that cancel, and sums that become infinite. Two cases were not
/// compared with the hardware: infinite or NaN operands (here every NaN is 0x7fffffff), and the sign of a
/// zero sum (here +0).
void multiply_accumulate(DType type, int rows, int columns, int inner, const float* a, const float* b,
                         float* d);

/// Multiplies and accumulates 16-bit elements in registers, in the shape of mma.sync.
void multiply_accumulate(DType type, const uint16_t (&a)[16][16], const uint16_t (&b)[16][8],
                         float (&d)[16][8]);

}  // namespace flashbook::sim
