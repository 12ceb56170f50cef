#include "chapters/09_masks/host/backward_launch.cuh"

namespace flashbook::masks {

int64_t gradients_workspace_bytes(const Shape& shape, bool in_turns) {
  return WorkspaceLayout(shape).bytes(tile_columns(shape.head_dim), in_turns);
}

bool gradients_fit(const Shape& shape) {
  constexpr int64_t kMax = 1 << 30;
  const WorkspaceLayout layout(shape);
  return layout.rows <= kMax && layout.entries <= kMax && layout.lists <= kMax;
}

}  // namespace flashbook::masks
