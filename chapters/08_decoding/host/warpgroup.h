/// \file
/// Step 10. Each head dimension has its own file, since the kernels take long to compile.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::decoding {

template <int kHeadDim>
void run_warpgroups(const Spec& spec, const Tensors& tensors, device::Stream stream);

}  // namespace flashbook::decoding
