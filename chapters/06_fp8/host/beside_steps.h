/// \file
/// The quantiser, which is not a step of chapter 6.
#pragma once
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook {

/// Where the quantiser writes: the buffers that Tensors then points to.
struct Quantised {
  void *q, *k, *v;                     ///< e4m3, as in Tensors
  float *q_scale, *k_scale, *v_scale;  ///< as many as Spec requires
  float* k_mean = nullptr;             ///< for a mean-subtracted shape, as in Tensors
  float* v_mean = nullptr;             ///< for a mean-subtracted shape, as in Tensors
  void* workspace = nullptr;           ///< for a mean-subtracted shape: quantise_workspace_bytes
};

/// Returns the bytes of temporary device memory that the quantiser needs to compute means.
int64_t quantise_workspace_bytes(const Spec& spec);

/// Runs the quantiser of steps 3 and 4: reads Q, K and V of type `from`, f16 or bf16, and writes them as e4m3
/// with scales according to spec.e4m3.scaling, in the layout of spec.layout. `incoherent`: Q and K times a
/// random rotation, which leaves the scores unchanged. The output of attention does not depend on `seed`. For
/// a mean-subtracted shape K, rotated or not, and V are written without the means of their columns.
void quantise_fp8(const Spec& spec, DType from, const void* q, const void* k, const void* v,
                  const Quantised& to, bool incoherent, uint32_t seed, device::Stream stream);

}  // namespace flashbook
