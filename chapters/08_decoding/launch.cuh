//| # How the kernels are launched
//|
//| The host's part: what a launch must know of the shape, tensor maps of the cache, and [into how many parts](plan.h) the keys are split.
#pragma once
#include <algorithm>

#include "chapters/08_decoding/packed.cuh"
#include "chapters/08_decoding/plan.h"
#include "common/attention/shape.h"
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"

namespace flashbook::decoding {

/// Whether each query sees its own key and those before. Lengths may differ by sequence, which
/// Visibility::is_causal does not know.
inline bool is_causal(const Shape& shape) {
  Visibility visibility = shape.visibility;
  visibility.lengths.clear();
  return visibility.is_causal();
}

/// `pack`: query heads that are rows of a tile.
inline Problem problem_of(const Shape& shape, const Tensors& t, int pack) {
  constexpr double kLog2E = 1.4426950408889634;
  return {.seqlen_q = shape.seqlen_q,
          .seqlen_k = shape.seqlen_k,
          .batch = shape.batch,
          .heads = shape.heads,
          .pack = pack,
          .packs = shape.heads / pack,
          .group = shape.heads / shape.kv_heads,
          .causal = is_causal(shape),
          .scale_log2 = float(shape.scale * kLog2E),
          .lengths = static_cast<const int*>(t.tables[int(TableId::lengths)]),
          .q_strides = shape.strides(TensorId::q),
          .o_strides = shape.strides(TensorId::o)};
}

/// The map of K or V, whose boxes are `box_rows` keys: {column, row, panel, head, batch}.
inline CUtensorMap cache_map(const Shape& shape, TensorId tensor, const void* base, int box_rows) {
  const uint64_t bytes = size_of(shape.dtype);
  const uint32_t panels = shape.head_dim / kPanel;
  const Strides strides = shape.strides(tensor);
  return device::tensor_map(
      {.dtype = shape.dtype,
       .base = base,
       .size = {kPanel, uint64_t(shape.seqlen_k), panels, uint64_t(shape.kv_heads), uint64_t(shape.batch)},
       .stride = {strides.row * bytes, kPanelRowBytes, strides.head * bytes, strides.batch * bytes},
       .box = {kPanel, uint32_t(box_rows), panels, 1, 1},
       .swizzle = Swizzle::b128});
}

/// Keys of a tile of steps 1 to 3.
constexpr int packed_keys(int head_dim) { return head_dim == 256 ? 64 : 128; }

/// Blocks of steps 1 to 3 before keys are split.
inline int64_t row_tiles(const Shape& shape, int pack) {
  const int64_t rows = int64_t(pack) * shape.seqlen_q;
  return int64_t(shape.batch) * (shape.heads / pack) * ((rows + kRowsOfWarpgroup - 1) / kRowsOfWarpgroup);
}

/// Step 3's parts.
inline int parts_of(const Shape& shape) {
  const int keys = packed_keys(shape.head_dim);
  return parts_for(row_tiles(shape, shape.heads / shape.kv_heads), (shape.seqlen_k + keys - 1) / keys,
                   2 * device::multiprocessors());
}

/// Bytes of `parts` partial results, O and then the log-sum-exp.
inline int64_t partial_bytes(const Shape& shape, int parts) {
  return parts * shape.q_rows() * (shape.head_dim + 1) * int64_t(sizeof(float));
}

inline Partials partials_in(void* workspace, const Shape& shape, int parts) {
  auto* o = static_cast<float*>(workspace);
  return {o, o + parts * shape.q_elements()};
}

/// Steps 1 to 3, `pack` heads a tile. With more than one part the workspace has partial_bytes.
template <typename T, int kHeadDim>
void run_packed(const Shape& shape, const Tensors& t, device::Stream stream, int pack, int parts) {
  constexpr int kKeys = packed_keys(kHeadDim);
  const Problem problem = problem_of(shape, t, pack);
  const Partials partials = parts == 1 ? Partials{} : partials_in(t.workspace, shape, parts);
  device::launch(packed<T, kHeadDim, kKeys>, dim3(row_tiles(shape, pack), parts), dim3(kWarpgroup),
                 sizeof(PackedShared<T, kHeadDim, kKeys>), stream, static_cast<const T*>(t.q),
                 cache_map(shape, TensorId::k, t.k, kKeys), cache_map(shape, TensorId::v, t.v, kKeys),
                 static_cast<T*>(t.o), t.lse, partials, problem);
  if (parts == 1) return;
  device::launch(merge<T, kHeadDim>,
                 dim3((problem.rows() + kMergeWarps - 1) / kMergeWarps, shape.batch * (shape.heads / pack)),
                 dim3(kMergeWarps * 32), 0, stream, partials, parts, static_cast<T*>(t.o), t.lse, problem);
}

}  // namespace flashbook::decoding
