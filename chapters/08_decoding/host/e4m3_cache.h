/// \file
/// Step 8 of chapter 8, a cache in e4m3: a separate file, so that it compiles in parallel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::decoding {

/// Launches step 8, for an e4m3 cache and queries of 16 bits. The workspace is that of step 6.
void run_e4m3_cache(const Spec& spec, const Tensors& tensors, device::Stream stream);

}  // namespace flashbook::decoding
