#include "chapters/09_masks/host/backward_launch.cuh"

namespace flashbook::masks {

int64_t gradients_workspace_bytes(const Spec& spec, bool in_turns) {
  return WorkspaceLayout(spec).bytes(tile_columns(spec, TensorId::q), in_turns);
}

bool gradients_fit(const Spec& spec) {
  constexpr int64_t kMax = 1 << 30;
  const WorkspaceLayout layout(spec);
  return layout.rows <= kMax && layout.entries <= kMax && layout.lists <= kMax;
}

}  // namespace flashbook::masks
