#include "chapters/08_decoding/host/e4m3_cache.h"
#include "chapters/08_decoding/host/shared_prefix.cuh"
#include "chapters/08_decoding/step8_e4m3_cache.cuh"
#include "common/device/dispatch.h"

namespace flashbook::decoding {

std::string why_not_scales(const Shape& shape) {
  if (shape.scaling != Scaling::block || shape.paging.rows == 0 || shape.paging.rows >= kRowsOfMma) return "";
  return "a scale of its own is for pages of 16 keys or more: give such pages, or a scale per head";
}

void run_e4m3_cache(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  device::with_16_bit_type_and_head_dim(shape.dtype, shape.head_dim, [&]<typename T, int kHeadDim>() {
    run_ring<T, kHeadDim, 1>(shape, tensors, stream, true, true);
  });
}

}  // namespace flashbook::decoding
