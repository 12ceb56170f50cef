/// \file
/// Step 5's interface to the chapter.
#pragma once
#include "common/attention/tensors.h"

namespace flashbook {

/// Computes attention with step5_register_blocks.h. T: float, f16 or bf16, as in spec.dtype.
template <typename T>
void attention_in_registers(const Spec& spec, const Tensors& tensors);

}  // namespace flashbook
