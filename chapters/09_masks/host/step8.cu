//| # How step 8 is launched
//|
//| The host's part of [step8_prompts.cuh](../step8_prompts.cuh): maps of pages, and of queries whose heads
//| share tiles.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the
//| longest first](../../../docs/figures/tile_order.svg)
#include <bit>

#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/host/varlen_map.cuh"
#include "chapters/09_masks/step8_prompts.cuh"

namespace flashbook::masks {
namespace {

//| ## The map of pages
//|
//| It is `varlen_map`, with boxes of one piece and one panel, and a unit that divides the distance between
//| pages, too.

/// Elements that divide the distances between pages, heads and rows.
int64_t page_unit(const Strides& strides) {
  return std::gcd(std::gcd(strides.row, strides.head), strides.batch);
}

TileMap page_map(const Shape& shape, TensorId tensor, const void* base, int box_rows) {
  const uint64_t unit = page_unit(shape.strides(tensor)) * int64_t(size_of(shape.dtype));
  return map_to_an_end(shape, tensor, base, unit, box_rows, 1);
}

/// Returns how a kernel addresses heads and rows in that map, and how far a page is from the next. Throws
/// UsageError if the numbers get too large.
std::pair<MapStrides, int> page_strides(const Shape& shape, TensorId tensor) {
  const Strides strides = shape.strides(tensor);
  const int64_t unit = page_unit(strides), pages = shape.paging.rows > 0 ? shape.paging.pages : shape.batch;
  const int64_t page_rows = shape.paging.rows > 0 ? shape.paging.rows : shape.seqlen_k;
  const double last = double(strides.batch) * double(pages) + double(strides.head) * shape.kv_heads +
                      double(strides.row) * double(page_rows);
  if (last / double(unit) > std::numeric_limits<int>::max())
    throw device::UsageError("a cache of more than 2^31 rows in all heads: split the heads");
  return {{int(strides.head / unit), int(strides.row / unit)}, int(strides.batch / unit)};
}

//| ## The map of queries
//|
//| A box has 64, 32 or 16 rows of one, two or four heads, one head after another. So heads that share a tile
//| are a separate dimension, and panels are not: a row is one dimension, and boxes are panels, as for padded
//| head dimensions.

/// log2 of the number of heads that share a tile: the largest of 1, 2 and 4 that divides a group.
int head_bits_of(const Shape& shape) {
  return std::min(std::countr_zero(unsigned(shape.heads / shape.kv_heads)), 2);
}

/// Q's or O's map. If packed, with seqlen_q queries in all, its rows are counted up to the end of a sequence.
TileMap shared_map(const Shape& shape, TensorId tensor, const void* base, bool packed) {
  const int bits = head_bits_of(shape);
  const Strides strides = shape.strides(tensor);
  const uint64_t bytes = size_of(shape.dtype), row_bytes = uint64_t(strides.row) * bytes,
                 head_bytes = uint64_t(strides.head) * bytes;
  device::TensorTiles of = {
      .dtype = shape.dtype,
      .base = base,
      .size = {uint64_t(shape.head_dim), uint64_t(shape.seqlen_q), uint64_t(1) << bits,
               uint64_t(shape.heads >> bits), uint64_t(shape.batch)},
      .stride = {row_bytes, head_bytes, head_bytes << bits, uint64_t(strides.batch) * bytes},
      .box = {kPanel, uint32_t(kRowsPerWarpgroup >> bits), uint32_t(1) << bits, 1, 1},
      .swizzle = Swizzle::b128};
  if (packed) count_to_an_end(of, map_unit(shape, tensor));
  return {device::tensor_map(of), true};
}

MapStrides shared_strides(const Shape& shape, TensorId tensor, bool packed) {
  if (!packed) return batch_strides(shape, tensor);
  const MapStrides strides = varlen_strides(shape, tensor);
  return {strides.head << head_bits_of(shape), strides.row};
}

//| ## The launch

template <typename T, typename Traits>
void run_prompts(const Shape& shape, const Tensors& t, device::Stream stream) {
  const bool packed = shape.packed_queries > 0;
  const auto table = [&](TableId id) { return static_cast<const int*>(t.tables[int(id)]); };
  const int page_rows = shape.paging.rows > 0 ? shape.paging.rows : shape.seqlen_k;
  const bool whole = page_rows >= shape.seqlen_k;  // a page holds a whole sequence
  const int piece_rows = whole ? Traits::kKeys : std::min(page_rows, Traits::kKeys);
  const int pages = ceil_div(shape.seqlen_k, page_rows), bits = head_bits_of(shape);
  //| A sequence of packed queries is not a batch entry. Its rows begin somewhere in the one entry that holds
  //| all of them.
  Shape query_shape = shape;
  if (packed) query_shape.batch = 1, query_shape.seqlen_q = shape.packed_queries;
  const auto [k_strides, k_distance] = page_strides(shape, TensorId::k);
  const auto [v_strides, v_distance] = page_strides(shape, TensorId::v);
  const Maps maps{shared_map(query_shape, TensorId::q, t.q, packed),
                  page_map(shape, TensorId::k, t.k, piece_rows),
                  page_map(shape, TensorId::v, t.v, piece_rows),
                  shared_map(query_shape, TensorId::o, t.o, packed),
                  shared_strides(query_shape, TensorId::q, packed),
                  k_strides,
                  v_strides,
                  shared_strides(query_shape, TensorId::o, packed)};

  const CachedSequences sequences{packed ? table(TableId::document_query) : nullptr,
                                  table(TableId::lengths),
                                  shape.batch,
                                  shape.seqlen_q,
                                  shape.seqlen_k,
                                  pages,
                                  bits};
  auto* counter = static_cast<int*>(t.workspace);
  int* const sorted = counter + kCounterBytes / int64_t(sizeof(int));
  const Plan plan{sorted, sorted + shape.batch};
  OpenEnds open;
  if (packed) open = open_ends(query_shape, t, sequences.first_query + shape.batch);
  device::launch(make_plan<Traits::kRows, Traits::kKeys, CachedSequences>, dim3(1 + clearing_blocks(open)),
                 dim3(kPlanThreads), 0, stream, sequences, plan, open);
  const Pages cache_pages{table(TableId::page_table), whole ? 30 : std::countr_zero(unsigned(page_rows)),
                          piece_rows, k_distance, v_distance};
  //| To the kernel heads that share tiles are one head.
  Shape kernel_shape = query_shape;
  kernel_shape.heads >>= bits;
  kernel_shape.layout.o = query_shape.strides(TensorId::o);
  //| A section of heads is measured by the longest sequence, as if blocks worked on one at a time. The plan
  //| numbers the heads of one batch entry.
  const int rows = Traits::kRows >> bits;
  const int heads = std::min(tile_order(kernel_shape, rows, true).heads_of_section, kernel_shape.heads);
  const int64_t tiles = kernel_shape.heads * (packed ? int64_t(shape.packed_queries / rows) + shape.batch
                                                     : int64_t(shape.batch) * ceil_div(shape.seqlen_q, rows));
  run_masked<T, Traits>(
      kernel_shape, t, stream,
      Prompts{{sequences, plan, heads}, {{band_of(shape.visibility), {}}}, {}, cache_pages, bits}, tiles,
      counter, maps);
}

}  // namespace

int64_t prompts_workspace_bytes(const Shape& shape) {
  return kCounterBytes + int64_t(sizeof(int)) * (2 * int64_t(shape.batch) + 1);
}

void run_prompts(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  with_traits<true>(shape,
                    [&]<typename T, typename Traits>() { run_prompts<T, Traits>(shape, tensors, stream); });
}

}  // namespace flashbook::masks
