/// \file
/// The cost model: what attention must compute and move, whatever the kernel.
#pragma once
#include <cstdint>

#include "common/attention/shape.h"

namespace flashbook {

/// Floating-point operations: 4 * head_dim * visible pairs * heads * batch, two for each
/// multiply-add of Q K^T and of P V.
double flops(const Shape& shape);

/// Bytes of device memory that no kernel can avoid: Q, K, V read once, O and the log-sum-exp written once. O
/// has the input's type, BF16 for e4m3.
double compulsory_bytes(const Shape& shape);

}  // namespace flashbook
