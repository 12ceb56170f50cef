//| # Which function on scores
//|
//| The host's part of a softcap and of slopes, which the forward pass and the gradient share.
#pragma once
#include <numbers>

#include "chapters/09_masks/step5_mask_functions.cuh"
#include "common/attention/tensors.h"

namespace flashbook::masks {

inline Softcap softcap_of(const Shape& shape) {
  const double c = shape.score.softcap;
  return {
      {}, float(-2 * std::numbers::log2e * shape.scale / c), float(2 * c * std::numbers::log2e), float(-c)};
}

/// `scale`: what the softmax multiplies by, without log2(e).
inline Alibi alibi_of(const Shape& shape, const Tensors& tensors, const Ranges& ranges, double scale) {
  return {{},
          static_cast<const float*>(tensors.tables[int(TableId::slopes)]),
          ranges,
          float(scale * std::numbers::log2e),
          float(1 / scale),
          0,
          shape.score.alibi.size() > std::size_t(shape.heads) ? shape.heads : 0};
}

inline DistanceBias bias_of(const Shape& shape, const Tensors& tensors, const Ranges& ranges) {
  return {{},
          static_cast<const float*>(tensors.tables[int(TableId::bias)]),
          shape.score.bias.reach,
          ranges,
          float(shape.scale * std::numbers::log2e),
          1 / shape.scale};
}

/// Calls `use(score)` with the shape's function: a softcap, slopes, one after the other, or none.
template <typename Use>
void with_function(const Shape& shape, const Tensors& tensors, const Ranges& ranges, const Use& use) {
  const ScoreFunction& score = shape.score;
  if (score.softcap == 0 && score.alibi.empty()) return use(Unchanged{});
  if (score.softcap == 0) return use(alibi_of(shape, tensors, ranges, shape.scale));
  const Softcap softcap = softcap_of(shape);
  if (score.alibi.empty()) return use(softcap);
  use(Composed<Softcap, Alibi>{{},
                               softcap,
                               alibi_of(shape, tensors, ranges, 2.0 * score.softcap),
                               softcap.scale_log2,
                               softcap.score_offset});
}

}  // namespace flashbook::masks
