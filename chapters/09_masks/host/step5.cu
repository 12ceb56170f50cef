#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/score_functions.cuh"
#include "chapters/09_masks/host/steps.h"

namespace flashbook::masks {
namespace {

/// Returns whether documents have their own tiles. Listed blocks count over all documents.
bool is_packed(const Spec& spec) {
  const Visibility& v = spec.visibility;
  return spec.batch == 1 && !v.documents.first_query.empty() && v.blocks.queries == 0;
}

/// Classifies the tiles and launches, with one mask and one function on scores.
template <typename Mask, typename Score>
void run(const Spec& spec, const Tensors& tensors, device::Stream stream, const Mask& mask,
         const Score& score) {
  run_in_batch<(std::is_same_v<Score, Unchanged> && std::is_same_v<Mask, RangeMask>)>(
      spec, tensors, stream, [&]<typename Traits>(const InBatch& order) {
        const int query_tiles = ceil_div(spec.seqlen_q, Traits::kRows),
                  key_tiles = ceil_div(spec.seqlen_k, Traits::kKeys);
        auto* const classes =
            reinterpret_cast<TileClass*>(static_cast<char*>(tensors.workspace) + kCounterBytes);
        const unsigned masks = Mask::kByHead ? unsigned(spec.batch * spec.heads) : 1;
        device::launch(
            classify_tiles<Traits::kRows, Traits::kKeys, Mask>,
            dim3(unsigned(ceil_div(key_tiles, kClassifyThreads / 32)), unsigned(query_tiles), masks),
            dim3(kClassifyThreads), 0, stream, mask, problem_of(spec), key_tiles, classes);
        return ByFunctions<Mask, Score>{order, mask, classes, query_tiles, key_tiles, Traits::kRows, score};
      });
}

}  // namespace

int64_t functions_workspace_bytes(const Spec& spec) {
  if (is_packed(spec)) return varlen_workspace_bytes(spec);
  const int rows = KernelTraits<64, false>::kRows;  // the smallest number of rows in any version
  const int keys =
      tile_columns(spec.head_dim) == 256 ? KernelTraits<256, false>::kKeys : KernelTraits<128, false>::kKeys;
  return kCounterBytes +
         int64_t(ceil_div(spec.seqlen_q, rows)) * ceil_div(spec.seqlen_k, keys) * int64_t(sizeof(TileClass));
}

namespace {

void run_by_mask(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const RangeMask ranges{{0, spec.seqlen_q, 0, spec.seqlen_k}, ranges_of(spec, tensors)};
  const auto table = [&](TableId id) { return tensors.tables[int(id)]; };
  if (const Blocks& b = spec.visibility.blocks; b.queries > 0) {
    const auto* first = static_cast<const int*>(table(TableId::block_first));
    const auto* key_blocks = static_cast<const int*>(table(TableId::block_keys));
    return run(spec, tensors, stream, BlockMask{ranges, first, key_blocks, b.queries, b.keys}, Unchanged{});
  }
  if (!spec.score.bias.values.empty())
    return run(spec, tensors, stream, ranges, bias_of(spec, tensors, ranges.ranges));
  with_function(spec, tensors, ranges.ranges,
                [&](const auto& score) { run(spec, tensors, stream, ranges, score); });
}

}  // namespace

void run_functions(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  if (is_packed(spec)) return run_packed_functions(spec, tensors, stream);
  run_by_mask(spec, tensors, stream);
  const DocumentBounds documents = documents_of(spec, tensors);
  if (documents.count == 0 || spec.batch > 1) return;  // in a batch they are only a mask
  const OpenEnds open = open_ends(spec, tensors, documents.first_query + documents.count);
  device::launch(clear_behind<kPlanThreads>, dim3(clearing_blocks(open)), dim3(kPlanThreads), 0, stream,
                 open);
}

}  // namespace flashbook::masks
