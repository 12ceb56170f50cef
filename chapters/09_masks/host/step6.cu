#include "chapters/09_masks/host/backward_launch.cuh"

namespace flashbook::masks {

int64_t gradients_workspace_bytes(const Shape& shape) { return GradientRoom(shape).bytes(shape.head_dim); }

bool gradients_fit(const Shape& shape) {
  constexpr int64_t kMost = 1 << 30;
  const GradientRoom room(shape);
  return room.rows <= kMost && room.entries <= kMost && room.lists <= kMost;
}

}  // namespace flashbook::masks
