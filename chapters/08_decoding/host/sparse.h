/// \file
/// Steps 11 and 12 of chapter 8, sparse latent attention: a separate file, so that it compiles in parallel.
#pragma once
#include <string>

#include "common/attention/spec.h"
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::decoding {

/// Returns why the steps cannot run the shape and what to do; empty if they can.
std::string limits_of_sparse(const Spec& spec);

/// Returns the bytes of the workspace: counters, and two parts per block.
int64_t sparse_workspace_bytes(const Spec& spec);

/// Launches step 11, or step 12 for keys in e4m3. `spec` is latent, in bf16, with lists of keys.
void run_sparse(const Spec& spec, const Tensors& tensors, device::Stream stream);

}  // namespace flashbook::decoding
