#include "chapters/08_decoding/host/e4m3_cache.h"
#include "chapters/08_decoding/host/shared_prefix.cuh"
#include "chapters/08_decoding/step8_e4m3_cache.cuh"
#include "common/device/dispatch.h"

namespace flashbook::decoding {

void run_e4m3_cache(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  device::with_16_bit_type_and_head_dim(spec.dtype, spec.head_dim, [&]<typename T, int kHeadDim>() {
    run_ring<T, kHeadDim, 1>(spec, tensors, stream, true, true);
  });
}

}  // namespace flashbook::decoding
