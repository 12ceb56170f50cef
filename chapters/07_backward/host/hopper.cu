#include "chapters/07_backward/host/hopper.h"
#include "chapters/07_backward/host/hopper_launch.cuh"

namespace flashbook::backward {

int64_t hopper_workspace_bytes(const Shape& shape, int step) {
  return bytes_of_workspace(shape, kWorkspaceRows, true) +
         (step >= 5 ? counters(shape, step == 6) * int64_t(sizeof(int)) : 0);
}

}  // namespace flashbook::backward
