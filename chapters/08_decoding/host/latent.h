/// \file
/// Step 7 of chapter 8, latent attention: a separate file, so that it compiles in parallel.
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

}  // namespace flashbook::decoding
