/// \file
/// Steps 3 to 6 of chapter 7, for Hopper.
#pragma once
#include "common/attention/spec.h"
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::backward {

/// Returns the bytes of device memory that steps 3 to 6 need beyond inputs and outputs.
int64_t hopper_workspace_bytes(const Spec& spec, int step);

/// Launches one of them. Each head dimension has its own file, since the kernels take long to compile.
template <int kHeadDim>
void run_hopper(const Spec& spec, const Tensors& tensors, device::Stream stream, int step);

}  // namespace flashbook::backward
