#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/step4_flashmask.cuh"

namespace flashbook::masks {
namespace {

/// Returns the number of key tiles in all rows of bounds.
int64_t scanned_tiles(const Spec& spec, int keys) {
  return int64_t(spec.batch) * spec.visibility.columns.heads * ceil_div(spec.seqlen_k, keys);
}

}  // namespace

int64_t columns_workspace_bytes(const Spec& spec) {
  if (spec.visibility.columns.bounds == 0) return kCounterBytes;
  const int keys =
      tile_columns(spec.head_dim) == 256 ? KernelTraits<256, false>::kKeys : KernelTraits<128, false>::kKeys;
  return kCounterBytes + scanned_tiles(spec, keys) * int64_t(sizeof(HiddenOfTile) + keys * sizeof(Hidden));
}

void run_columns(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const Visibility& v = spec.visibility;
  if (v.columns.bounds == 0) return run_ranges(spec, tensors, stream);
  run_in_batch<false>(spec, tensors, stream, [&]<typename Traits>(const InBatch& order) {
    const int64_t tiles = scanned_tiles(spec, Traits::kKeys);
    auto* const hidden = reinterpret_cast<Hidden*>(static_cast<char*>(tensors.workspace) + kCounterBytes);
    const Scanned scanned{hidden, reinterpret_cast<HiddenOfTile*>(hidden + tiles * Traits::kKeys)};
    const ColumnBounds bounds{static_cast<const int*>(tensors.tables[int(TableId::columns)]),
                              v.columns.bounds, v.window.right == 0};
    constexpr int kTilesPerBlock = kScanThreads / 32;
    device::launch(scan_columns<Traits::kKeys>, dim3(unsigned(ceil_div(tiles, kTilesPerBlock))),
                   dim3(kScanThreads), 0, stream, bounds, spec.seqlen_q, spec.seqlen_k, int(tiles), scanned);
    return ByColumns{order,           {ranges_of(spec, tensors)},
                     scanned,         v.columns.heads == 1 ? spec.heads : spec.heads / spec.kv_heads,
                     v.columns.heads, ceil_div(spec.seqlen_k, Traits::kKeys),
                     Traits::kKeys,   {}};
  });
}

}  // namespace flashbook::masks
