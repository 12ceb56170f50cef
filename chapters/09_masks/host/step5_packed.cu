#include "chapters/09_masks/host/packed_launch.cuh"
#include "chapters/09_masks/host/score_functions.cuh"

namespace flashbook::masks {
namespace {

template <template <typename> typename Sized = std::type_identity_t, typename Score>
void run(const Shape& shape, const Tensors& tensors, device::Stream stream, const Score& score) {
  const Ranges ranges{band_of(shape.visibility), {}};
  run_packed<false, Sized>(shape, tensors, stream, [&](const InPlan<Packed>& planned) {
    return VarlenByFunctions<Score>{planned, {ranges}, {score}};
  });
}

/// The sizes for a bias: at d = 256 nvcc 13.0 spilled 32 bytes of a kernel with 64 keys.
template <typename Traits>
struct FewerKeys : Traits {
  static constexpr int kKeys = Traits::kHeadDim == 256 ? 48 : Traits::kKeys;
};

}  // namespace

void run_packed_functions(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  if (shape.score == ScoreFunction{}) return run_varlen(shape, tensors, stream);
  if (shape.score.dropout > 0)
    return run(shape, tensors, stream, RandomDropout{{}, Dropout(shape.score.dropout, shape.score.seed)});
  // A row knows its sequence, and has to search for its number only if sequences have their own slopes.
  Ranges ranges = ranges_of(shape, tensors);
  if (shape.score.alibi.size() <= std::size_t(shape.heads)) ranges.documents = {};
  if (!shape.score.bias.values.empty())
    return run<FewerKeys>(shape, tensors, stream, bias_of(shape, tensors, ranges));
  with_function(shape, tensors, ranges, [&]<typename Score>(const Score& score) {
    if constexpr (!std::is_same_v<Score, Unchanged>) run(shape, tensors, stream, score);
  });
}

}  // namespace flashbook::masks
