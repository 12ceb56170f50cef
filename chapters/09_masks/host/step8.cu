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
//| It is `varlen_map`, with boxes of one piece and one panel, and a unit that also divides the distance
//| between pages.

/// Elements that divide the distances between pages, heads and rows.
int64_t page_unit(const Strides& strides) {
  return std::gcd(std::gcd(strides.row, strides.head), strides.batch);
}

TileMap page_map(const Spec& spec, TensorId tensor, const void* base, int box_rows) {
  const uint64_t unit = page_unit(spec.strides(tensor)) * int64_t(size_of(spec.dtype));
  return map_to_an_end(spec, tensor, base, unit, box_rows, 1);
}

/// Returns how a kernel addresses heads and rows in that map, and how far a page is from the next. Throws
/// UsageError if an index would overflow.
std::pair<MapStrides, int> page_strides(const Spec& spec, TensorId tensor) {
  const Strides strides = spec.strides(tensor);
  const int64_t unit = page_unit(strides), pages = spec.paging.rows > 0 ? spec.paging.pages : spec.batch;
  const int64_t page_rows = spec.paging.rows > 0 ? spec.paging.rows : spec.seqlen_k;
  const double last = double(strides.batch) * double(pages) + double(strides.head) * spec.kv_heads +
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
int head_bits_of(const Sizes& sizes) {
  return std::min(std::countr_zero(unsigned(sizes.heads / sizes.kv_heads)), 2);
}

/// Q's or O's map. If packed, with seqlen_q queries in all, its rows are counted up to the end of a sequence.
TileMap shared_map(const Spec& spec, TensorId tensor, const void* base, bool packed) {
  const int bits = head_bits_of(spec);
  const Strides strides = spec.strides(tensor);
  const uint64_t bytes = size_of(spec.dtype), row_bytes = uint64_t(strides.row) * bytes,
                 head_bytes = uint64_t(strides.head) * bytes;
  device::TensorTiles of = {
      .dtype = spec.dtype,
      .base = base,
      .size = {uint64_t(spec.head_dim), uint64_t(spec.seqlen_q), uint64_t(1) << bits,
               uint64_t(spec.heads >> bits), uint64_t(spec.batch)},
      .stride = {row_bytes, head_bytes, head_bytes << bits, uint64_t(strides.batch) * bytes},
      .box = {kPanel, uint32_t(kRowsPerWarpgroup >> bits), uint32_t(1) << bits, 1, 1},
      .swizzle = Swizzle::b128};
  if (packed) count_to_an_end(of, map_unit(spec, tensor));
  return {device::tensor_map(of), true};
}

MapStrides shared_strides(const Spec& spec, TensorId tensor, bool packed) {
  if (!packed) return batch_strides(spec, tensor);
  const MapStrides strides = varlen_strides(spec, tensor);
  return {strides.head << head_bits_of(spec), strides.row};
}

//| ## The launch

template <typename T, typename Traits>
void run_prompts(const Spec& spec, const Tensors& t, device::Stream stream) {
  const bool packed = spec.batching.packed_queries > 0;
  const auto table = [&](TableId id) { return static_cast<const int*>(t.tables[int(id)]); };
  const int page_rows = spec.paging.rows > 0 ? spec.paging.rows : spec.seqlen_k;
  const bool whole = page_rows >= spec.seqlen_k;  // a page holds a whole sequence
  const int piece_rows = whole ? Traits::kKeys : std::min(page_rows, Traits::kKeys);
  const int pages = ceil_div(spec.seqlen_k, page_rows), bits = head_bits_of(spec);
  //| A sequence of packed queries is not a batch entry. Its rows begin somewhere in the one entry that holds
  //| all of them.
  Spec query_spec = spec;
  if (packed) query_spec.batch = 1, query_spec.seqlen_q = spec.batching.packed_queries;
  const auto [k_strides, k_distance] = page_strides(spec, TensorId::k);
  const auto [v_strides, v_distance] = page_strides(spec, TensorId::v);
  const Maps maps{shared_map(query_spec, TensorId::q, t.q, packed),
                  page_map(spec, TensorId::k, t.k, piece_rows),
                  page_map(spec, TensorId::v, t.v, piece_rows),
                  shared_map(query_spec, TensorId::o, t.o, packed),
                  shared_strides(query_spec, TensorId::q, packed),
                  k_strides,
                  v_strides,
                  shared_strides(query_spec, TensorId::o, packed)};

  const CachedSequences sequences{packed ? table(TableId::document_query) : nullptr,
                                  table(TableId::lengths),
                                  spec.batch,
                                  spec.seqlen_q,
                                  spec.seqlen_k,
                                  pages,
                                  bits};
  auto* counter = static_cast<int*>(t.workspace);
  int* const sorted = counter + kCounterBytes / int64_t(sizeof(int));
  const Plan plan{sorted, sorted + spec.batch};
  OpenEnds open;
  if (packed) open = open_ends(query_spec, t, sequences.first_query + spec.batch);
  device::launch(make_plan<Traits::kRows, Traits::kKeys, CachedSequences>, dim3(1 + clearing_blocks(open)),
                 dim3(kPlanThreads), 0, stream, sequences, plan, open);
  const Pages cache_pages{table(TableId::page_table), whole ? 30 : std::countr_zero(unsigned(page_rows)),
                          piece_rows, k_distance, v_distance};
  //| To the kernel, heads that share tiles are one head.
  Spec kernel_spec = query_spec;
  kernel_spec.heads >>= bits;
  kernel_spec.layout.o = query_spec.strides(TensorId::o);
  //| A section of heads is measured by the longest sequence, as if blocks worked on one at a time. The plan
  //| numbers the heads of one batch entry.
  const int rows = Traits::kRows >> bits;
  const int heads = std::min(tile_order(kernel_spec, rows, true).heads_of_section, kernel_spec.heads);
  const int64_t tiles =
      kernel_spec.heads * (packed ? int64_t(spec.batching.packed_queries / rows) + spec.batch
                                  : int64_t(spec.batch) * ceil_div(spec.seqlen_q, rows));
  run_masked<T, Traits>(
      kernel_spec, t, stream,
      Prompts{{sequences, plan, heads}, {{band_of(spec.visibility), {}}}, {}, cache_pages, bits}, tiles,
      counter, maps);
}

}  // namespace

int64_t prompts_workspace_bytes(const Spec& spec) {
  return kCounterBytes + int64_t(sizeof(int)) * (2 * int64_t(spec.batch) + 1);
}

void run_prompts(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  with_traits<true>(spec,
                    [&]<typename T, typename Traits>() { run_prompts<T, Traits>(spec, tensors, stream); });
}

}  // namespace flashbook::masks
