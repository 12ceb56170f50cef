/// \file
/// Steps 4 to 6 with windows, functions on scores and sinks. Each head dimension has its own file, since the
/// kernels take long to compile.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::decoding {

/// Returns whether a launch needs rules: it has a mask other than the causal one, a function on scores, sinks
/// or paddings.
bool has_rules(const Spec& spec);

template <int kHeadDim>
void run_with_rules(const Spec& spec, const Tensors& tensors, device::Stream stream, bool equal_work,
                    bool boxes);

}  // namespace flashbook::decoding
