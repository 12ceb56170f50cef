//| # Choosing the score function
//|
//| The host's part of a softcap and of slopes, which the forward pass and the gradient share.
#pragma once
#include <numbers>

#include "chapters/09_masks/step5_mask_functions.cuh"
#include "common/attention/tensors.h"

namespace flashbook::masks {

inline Softcap softcap_of(const Spec& spec) {
  const double c = spec.score.softcap;
  return {.factor = float(-2 * std::numbers::log2e * spec.scale / c),
          .scale_log2 = float(2 * c * std::numbers::log2e),
          .score_offset = float(-c)};
}

/// `scale` is the softmax's factor, without log2(e).
inline Alibi alibi_of(const Spec& spec, const Tensors& tensors, const Ranges& ranges, double scale) {
  return {.slopes = static_cast<const float*>(tensors.tables[int(TableId::slopes)]),
          .ranges = ranges,
          .scale_log2 = float(scale * std::numbers::log2e),
          .per_scale = float(1 / scale),
          .to_sequence = spec.score.alibi.size() > std::size_t(spec.heads) ? spec.heads : 0};
}

inline DistanceBias bias_of(const Spec& spec, const Tensors& tensors, const Ranges& ranges) {
  return {.bias = static_cast<const float*>(tensors.tables[int(TableId::bias)]),
          .reach = spec.score.bias.reach,
          .ranges = ranges,
          .scale_log2 = float(spec.scale * std::numbers::log2e),
          .per_scale = 1 / spec.scale};
}

/// Calls `use(score)` with the shape's function: a softcap, slopes, one after the other, or none. Dropout
/// may follow slopes, or no function.
template <typename Use>
void with_function(const Spec& spec, const Tensors& tensors, const Ranges& ranges, const Use& use) {
  const ScoreFunction& score = spec.score;
  const auto use_with_dropout = [&]<typename Score>(const Score& function) {
    if (score.dropout == 0) return use(function);
    use(RandomDropout<Score>{function, Dropout(score.dropout, score.seed)});
  };
  if (score.softcap == 0 && score.alibi.empty()) return use_with_dropout(Unchanged{});
  if (score.softcap == 0) return use_with_dropout(alibi_of(spec, tensors, ranges, spec.scale));
  const Softcap softcap = softcap_of(spec);
  if (score.alibi.empty()) return use(softcap);
  use(Composed<Softcap, Alibi>{.first = softcap,
                               .second = alibi_of(spec, tensors, ranges, 2.0 * score.softcap),
                               .scale_log2 = softcap.scale_log2,
                               .score_offset = softcap.score_offset});
}

}  // namespace flashbook::masks
