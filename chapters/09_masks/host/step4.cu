#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/step4_flashmask.cuh"

namespace flashbook::masks {
namespace {

/// Returns the number of key tiles in all rows of bounds.
int64_t scanned_tiles(const Shape& shape, int keys) {
  return int64_t(shape.batch) * shape.visibility.columns.heads * ceil_div(shape.seqlen_k, keys);
}

}  // namespace

int64_t columns_workspace_bytes(const Shape& shape) {
  if (shape.visibility.columns.bounds == 0) return kCounterBytes;
  const int keys =
      tile_columns(shape.head_dim) == 256 ? KernelTraits<256, false>::kKeys : KernelTraits<128, false>::kKeys;
  return kCounterBytes + scanned_tiles(shape, keys) * int64_t(sizeof(HiddenOfTile) + keys * sizeof(Hidden));
}

void run_columns(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  const Visibility& v = shape.visibility;
  if (v.columns.bounds == 0) return run_ranges(shape, tensors, stream);
  run_in_batch<false>(shape, tensors, stream, [&]<typename Traits>(const InBatch& order) {
    const int64_t tiles = scanned_tiles(shape, Traits::kKeys);
    auto* const hidden = reinterpret_cast<Hidden*>(static_cast<char*>(tensors.workspace) + kCounterBytes);
    const Scanned scanned{hidden, reinterpret_cast<HiddenOfTile*>(hidden + tiles * Traits::kKeys)};
    const ColumnBounds bounds{static_cast<const int*>(tensors.tables[int(TableId::columns)]),
                              v.columns.bounds, v.window.right == 0};
    constexpr int kTilesPerBlock = kScanThreads / 32;
    device::launch(scan_columns<Traits::kKeys>, dim3(unsigned(ceil_div(tiles, kTilesPerBlock))),
                   dim3(kScanThreads), 0, stream, bounds, shape.seqlen_q, shape.seqlen_k, int(tiles),
                   scanned);
    return ByColumns{order,           {ranges_of(shape, tensors)},
                     scanned,         v.columns.heads == 1 ? shape.heads : shape.heads / shape.kv_heads,
                     v.columns.heads, ceil_div(shape.seqlen_k, Traits::kKeys),
                     Traits::kKeys,   {}};
  });
}

}  // namespace flashbook::masks
