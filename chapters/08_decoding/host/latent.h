/// \file
/// Steps 7, 11 and 12 of chapter 8, latent attention: separate files, so that they compile in parallel.
#pragma once
#include <string>

#include "common/attention/spec.h"
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::decoding {

/// Returns why the step cannot use the shape's pages and what to do; empty if it can or there are no pages.
std::string limits_of_latent_pages(const Spec& spec);

/// Returns the bytes of the workspace: counters, as in steps 4 to 6, and two parts per block.
int64_t latent_workspace_bytes(const Spec& spec);

/// Launches step 7. `spec` is latent, with 16-bit elements.
void run_latent(const Spec& spec, const Tensors& tensors, device::Stream stream);

/// Returns why steps 11 and 12, sparse latent attention, cannot run the shape and what to do; empty if they
/// can.
std::string limits_of_sparse(const Spec& spec);

/// Returns the bytes of their workspace: counters, and two parts per block.
int64_t sparse_workspace_bytes(const Spec& spec);

/// Launches step 11, or step 12 for keys in e4m3. `spec` is latent, in bf16, with lists of keys.
void run_sparse(const Spec& spec, const Tensors& tensors, device::Stream stream);

}  // namespace flashbook::decoding
