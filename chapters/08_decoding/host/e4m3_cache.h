/// \file
/// Step 8 of chapter 8, a cache in e4m3: a file of its own, so that it compiles in parallel.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook::decoding {

/// Launches it. The shape's cache is e4m3, its queries are of 16 bits. The workspace is step 6's.
void run_e4m3_cache(const Shape& shape, const Tensors& tensors, device::Stream stream);

}  // namespace flashbook::decoding
