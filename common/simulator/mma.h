/// \file
/// mma.sync: a warp multiplies two small matrices held in its registers.
#pragma once
#include <cstdint>

#include "common/numeric/dtype.h"
#include "common/simulator/location.h"

namespace flashbook::sim {

/// Computes d = a * b + c, where a is 16x16, b 16x8, and c and d 16x8. Each lane passes its registers, in
/// PTX's layout.
void mma_m16n8k16(DType type, float* d, const uint32_t* a, const uint32_t* b, const float* c, Location where);

}  // namespace flashbook::sim
