#include "chapters/07_backward/hopper.h"
#include "chapters/07_backward/hopper_launch.cuh"
#include "common/device/dispatch.h"

namespace flashbook::backward {

int64_t hopper_workspace_bytes(const Shape& shape, int step) {
  return bytes_of_workspace(shape, kWorkspaceRows, true) +
         (step >= 5 ? counters(shape, step == 6) * int64_t(sizeof(int)) : 0);
}

void run_hopper(const Shape& shape, const Tensors& tensors, device::Stream stream, int step) {
  device::with_type(shape.dtype, [&]<typename T>() {
    if constexpr (sizeof(T) == 2)  // with_type also knows float, which why_not refuses
      device::with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
        shape.causal() ? run_step<T, kHeadDim, true>(shape, tensors, stream, step)
                       : run_step<T, kHeadDim, false>(shape, tensors, stream, step);
      });
  });
}

}  // namespace flashbook::backward
