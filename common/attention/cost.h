/// \file
/// The cost model: what attention must compute and move, whatever the kernel.
#pragma once
#include <cstdint>

#include "common/attention/shape.h"

namespace flashbook {

/// Visible (query, key) pairs of one head. A square causal mask counts N * N / 2, as the papers do (the
/// diagonal's other half is left out); every other shape counts exactly.
double visible_pairs(const Shape& shape);

/// Floating-point operations: 4 * head_dim * visible pairs * heads * batch, two for each
/// multiply-add of Q K^T and of P V.
double flops(const Shape& shape);

/// Bytes of device memory that no kernel can avoid: Q, K, V read once, O and the log-sum-exp written once. O
/// has the input's type, BF16 for e4m3.
double compulsory_bytes(const Shape& shape);

}  // namespace flashbook
