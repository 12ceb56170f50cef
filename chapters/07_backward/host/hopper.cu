#include "chapters/07_backward/host/hopper.h"
#include "chapters/07_backward/host/hopper_launch.cuh"

namespace flashbook::backward {

int64_t hopper_workspace_bytes(const Spec& spec, int step) {
  return bytes_of_workspace(spec, kWorkspaceRows, true) + counters(spec, step) * int64_t(sizeof(int)) +
         2 * key_sums_of(spec, {}, step).floats * int64_t(sizeof(float));
}

}  // namespace flashbook::backward
