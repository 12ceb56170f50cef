//| # How the kernels are launched
//|
//| The host's part: a launch's view of the shape, tensor maps of the cache, and [into how many
//| parts](parts.h) the keys are split.
#pragma once
#include <algorithm>
#include <bit>
#include <climits>

#include "chapters/08_decoding/host/parts.h"
#include "chapters/08_decoding/step1_pack_gqa.cuh"
#include "chapters/08_decoding/step9_boxes.cuh"
#include "common/attention/spec.h"
#include "common/attention/tensors.h"
#include "common/hopper/launch.h"

namespace flashbook::decoding {

/// Returns whether each query sees its own key and those before. Lengths may differ by sequence, which
/// Visibility::is_causal does not consider.
inline bool is_causal(const Spec& spec) {
  Visibility visibility = spec.visibility;
  visibility.lengths.clear();
  return visibility.is_causal();
}

/// `pack`: query heads that are rows of a tile.
inline Problem problem_of(const Spec& spec, const Tensors& t, int pack) {
  return {.seqlen_q = spec.seqlen_q,
          .seqlen_k = spec.seqlen_k,
          .batch = spec.batch,
          .heads = spec.heads,
          .pack = pack,
          .packs = spec.heads / pack,
          .group = spec.heads / spec.kv_heads,
          .causal = is_causal(spec),
          .scale_log2 = float(spec.scale * std::numbers::log2e),
          .lengths = static_cast<const int*>(t.tables[int(TableId::lengths)]),
          .q_strides = spec.strides(TensorId::q),
          .o_strides = spec.strides(TensorId::o),
          .number_strides = {int64_t(spec.heads) * spec.seqlen_q, spec.seqlen_q, 1}};
}

//| A contiguous cache and a cache of pages have the same map, chapter 5's `tile_map`. Without pages a
//| sequence is a single page of its own length.
/// Returns the keys per tile in steps 1 to 3.
constexpr int pack_gqa_keys(int head_dim) { return head_dim == 256 ? 64 : 128; }

/// Returns the number of blocks in steps 1 to 3 before keys are split.
inline int64_t row_tiles(const Sizes& sizes, int pack) {
  const int64_t rows = int64_t(pack) * sizes.seqlen_q;
  return int64_t(sizes.batch) * (sizes.heads / pack) * ceil_div(rows, kRowsPerWarpgroup);
}

/// Returns the number of step 3's parts.
inline int parts_of(const Sizes& sizes) {
  const int keys = pack_gqa_keys(sizes.head_dim);
  return parts_for(row_tiles(sizes, sizes.heads / sizes.kv_heads), ceil_div(sizes.seqlen_k, keys),
                   2 * device::multiprocessors());
}

/// Returns the bytes of `parts` partial results, O and then the log-sum-exp.
inline int64_t partial_bytes(const Sizes& sizes, int parts) {
  return parts * sizes.q_rows() * (sizes.head_dim + 1) * int64_t(sizeof(float));
}

inline Partials partials_in(void* workspace, const Sizes& sizes, int parts) {
  auto* o = static_cast<float*>(workspace);
  return {o, o + parts * sizes.q_elements()};
}

/// Launches step 3's second kernel, which merges `parts` partial results.
template <typename T, int kHeadDim>
void run_merge(const Problem& problem, const Partials& partials, int parts, const Tensors& t,
               device::Stream stream) {
  device::launch(merge<T, kHeadDim>,
                 dim3(unsigned(ceil_div(problem.rows(), kMergeWarps) * problem.batch * problem.packs)),
                 dim3(kMergeWarps * 32), 0, stream, partials, parts, static_cast<T*>(t.o), t.lse, problem);
}

/// Launches steps 1 to 3 with `pack` heads per tile. With more than one part the workspace has partial_bytes.
template <typename T, int kHeadDim>
void run_pack_gqa(const Spec& spec, const Tensors& t, device::Stream stream, int pack, int parts) {
  constexpr int kKeys = pack_gqa_keys(kHeadDim);
  const Problem problem = problem_of(spec, t, pack);
  const Partials partials = parts == 1 ? Partials{} : partials_in(t.workspace, spec, parts);
  device::launch(pack_gqa<T, kHeadDim, kKeys>, dim3(row_tiles(spec, pack), parts), dim3(kWarpgroup),
                 sizeof(PackGqaShared<T, kHeadDim, kKeys>), stream, static_cast<const T*>(t.q),
                 tile_map(spec, TensorId::k, t.k, kKeys), tile_map(spec, TensorId::v, t.v, kKeys),
                 static_cast<T*>(t.o), t.lse, partials, problem);
  if (parts > 1) run_merge<T, kHeadDim>(problem, partials, parts, t, stream);
}

//| ## Steps 4 to 6
//|
//| One block per multiprocessor. Equal parts: as many as let all blocks run at once.

/// Returns the 16-row tiles per block in steps 4 to 6: as many as the pack needs, up to 4, or 2 at d = 256.
inline int ring_row_tiles(const Sizes& sizes) {
  const int64_t rows = int64_t(sizes.heads / sizes.kv_heads) * sizes.seqlen_q;
  const int most = tile_columns(sizes.head_dim) == 256 ? 1 : 4;
  int tiles = 1;
  while (tiles < most && tiles * kRowsPerMma < rows) tiles *= 2;
  return tiles;
}

struct RingLaunch {
  int blocks;
  Plan plan;
  bool in_halves;  ///< whether each multiprocessor runs two blocks
  bool boxes;      ///< whether step 9 runs
  int rows;        ///< rows per block
  int begin_at;    ///< copies begin at multiples of this many keys
};

//| Under a window, only the window's keys are distributed. A copy loads whole pages, or a tile's share of
//| one, so the first may begin before the window does.
/// Returns whether keys and values of a head are contiguous.
inline bool rows_are_dense(const Spec& spec) {
  return spec.strides(TensorId::k).row == spec.head_dim && spec.strides(TensorId::v).row == spec.head_dim;
}

/// Returns whether keys are in pages that are shorter than a sequence.
inline bool has_pages(const Spec& spec) { return spec.paging.rows > 0 && spec.paging.rows < spec.seqlen_k; }

//| Step 9's boxes begin at multiples of 128 bytes in shared memory. If boxes of a few short rows do not, each
//| key is a separate copy, as in step 6.
/// Returns the keys per box in step 9.
inline int box_keys_of(const Spec& spec, int tile_keys) {
  return std::min({kBoxKeys, tile_keys, has_pages(spec) ? spec.paging.rows : tile_keys});
}

/// Returns whether step 9 loads the cache in boxes.
inline bool fits_boxes(const Spec& spec, int tile_keys) {
  const int bytes = spec.head_dim * int(size_of(type_of(spec, TensorId::k)));
  return box_keys_of(spec, tile_keys) * bytes % 128 == 0;
}

/// Keys per copy: one for scattered rows, otherwise as many of a tile as are in one page. `boxes`: by step 9.
inline int copy_rows_of(const Spec& spec, int tile_keys, bool boxes) {
  if (boxes && fits_boxes(spec, tile_keys)) return box_keys_of(spec, tile_keys);
  if (!rows_are_dense(spec)) return 1;
  return spec.paging.rows > 0 ? std::min(spec.paging.rows, tile_keys) : tile_keys;
}

/// Copies of a sequence begin at multiples of this many keys. A sequence of one page has no such limit.
inline int copies_begin_at(const Spec& spec, int tile_keys, bool boxes = false) {
  return has_pages(spec) ? copy_rows_of(spec, tile_keys, boxes) : 1;
}

/// Returns the largest number of keys that any query sees: the last ones of a sequence.
inline int keys_seen_of(const Spec& spec) {
  const int left = spec.visibility.window.left;
  return left < 0 ? spec.seqlen_k : int(std::min<int64_t>(spec.seqlen_k, int64_t(left) + spec.seqlen_q));
}

/// The most keys of a short item (measured on an H200).
constexpr int kShortItem = 4096;

/// A grid's y size.
constexpr int64_t kMaxItemsToSplit = 65535;

/// Returns how many members a team (plan.cuh) has: one per item of a sequence, or a divisor of that number
/// that leaves at most a tenth of the multiprocessors without a block.
inline int team_of(int items_of_sequence, int processors) {
  int team = std::min(items_of_sequence, processors);
  while (items_of_sequence % team != 0 || 10 * (processors / team * team) < 9 * processors) --team;
  return team;
}

/// Returns a plan for blocks of `rows` rows and tiles of `keys` keys, whose copies begin at multiples of
/// `begin_at` keys. Without `equal_work`: equal parts. `even`: all sequences are as long as the shape says.
/// `halves`: there is a kernel with two blocks per multiprocessor. Items of up to `short_item` keys go to
/// resident blocks.
inline RingLaunch plan_launch(const Spec& spec, int rows, int keys, int begin_at, bool equal_work, bool even,
                              bool halves = false, int short_item = kShortItem) {
  const int row_tiles = int(ceil_div(int64_t(spec.heads / spec.kv_heads) * spec.seqlen_q, rows));
  const int64_t items = int64_t(spec.batch) * spec.kv_heads * row_tiles;
  const int64_t seen = int64_t(keys_seen_of(spec)) + begin_at - 1;  // with other keys of a page
  const int key_tiles = int(ceil_div(std::min<int64_t>(seen, spec.seqlen_k), keys));
  const int processors = device::multiprocessors();
  //| The kernel that merges many parts has a row of blocks for each item, and a grid has at most 65,535 rows.
  //| More items than that keep every multiprocessor busy for hundreds of items each, so none is cut.
  const bool unsplit = spec.batching.unsplit || items > kMaxItemsToSplit;
  const int parts = unsplit ? 1 : int(std::clamp<int64_t>(processors / items, 1, key_tiles));
  //| Equal work on all multiprocessors cuts nearly every item at a different place, and every cut costs a
  //| merge. If equal parts keep nine of ten multiprocessors busy, it is better to have as many blocks as
  //| parts, which avoids needless cuts. If all lengths are the same, that is a plan of equal parts.
  const bool parts_fill = items <= processors && 10 * items * parts >= 9 * processors;
  //| If there are more items of the same length than multiprocessors, cuts are needless, too, unless the last
  //| round leaves too few blocks: six of ten keep memory busy. Short items go to resident blocks, one after
  //| the other. Long ones get a block each: the next then goes to whichever multiprocessor is free first, and
  //| since multiprocessors are not equally fast, that saves more than a block's start costs.
  //|
  //| Between two items a block waits for queries, and its warps merge. So short items run faster with two
  //| blocks per multiprocessor, with half as many warps and half as large stages, because the other block
  //| keeps reading. Resident blocks have the same number of items, or one fewer: 1024 items are four for each
  //| of 256 blocks, not four for 232 and three for 32.
  const bool even_items = even && spec.batching.packed_queries == 0;  // else sequences have different numbers
  const bool short_items = equal_work && even_items && keys_seen_of(spec) <= short_item && items > processors;
  const auto staying = [&](int64_t most) { return ceil_div(items, ceil_div(items, most)); };
  const int64_t pairs = staying(2 * int64_t(processors));
  const bool in_halves =
      halves && short_items && !unsplit && rows == kRowsPerMma && 10 * pairs >= 9 * 2 * int64_t(processors);
  const bool items_fill =
      items > processors && 10 * ((items - 1) % processors + 1) >= 6 * int64_t(processors);
  if (even_items && (parts_fill || items_fill || in_halves)) equal_work = false;
  if (spec.batching.packed_queries > 0) equal_work = true;
  if (unsplit) equal_work = false;
  const int items_of_sequence = spec.kv_heads * row_tiles;
  // Sequences of different numbers of queries have different numbers of items.
  const int team =
      equal_work && spec.batching.packed_queries == 0 ? team_of(items_of_sequence, processors) : 1;
  const int64_t most = parts_fill ? items * parts : processors / team * team;
  return {.blocks = equal_work    ? int(std::min<int64_t>(most, items * key_tiles))
                    : in_halves   ? int(pairs)
                    : short_items ? int(staying(processors))
                                  : int(items) * parts,
          .plan = {.parts = equal_work ? 1 : parts,
                   .equal_work = equal_work,
                   .row_tiles = row_tiles,
                   .items_of_sequence = items_of_sequence,
                   .team = team,
                   .first_key = 0},
          .in_halves = in_halves,
          .boxes = false,
          .rows = rows,
          .begin_at = begin_at};
}

/// Steps 4 and 5: equal parts. Step 6: equal work. `boxes`: for step 9.
inline RingLaunch ring_launch(const Spec& spec, bool equal_work, bool even = false, bool halves = false,
                              bool boxes = false) {
  const int keys = kStageBytes / int(size_of(type_of(spec, TensorId::k))) / tile_columns(spec.head_dim);
  RingLaunch launch = plan_launch(spec, ring_row_tiles(spec) * kRowsPerMma, keys,
                                  copies_begin_at(spec, keys, boxes), equal_work, even, halves);
  launch.boxes = boxes;
  return launch;
}

/// Up to this many rows in all, a second kernel merges items with more than a few parts. (Chosen on an H200.)
constexpr int kFewRows = 2048;

//| Step 10's blocks process the rows of one warpgroup, or of two.
/// Returns a launch of step 10. `even`: all sequences are as long as the shape says.
inline RingLaunch warpgroup_launch(const Spec& spec, bool even) {
  const int columns = tile_columns(spec.head_dim), keys = columns == 256 ? 64 : 128;
  const int64_t rows = int64_t(spec.heads / spec.kv_heads) * spec.seqlen_q;
  const int groups = columns < 256 && rows > kRowsPerWarpgroup ? 2 : 1;
  const int begin_at = has_pages(spec) ? box_keys_of(spec, keys) : 1;
  //| Its blocks stay resident for items of any length: the producers load the next item's tiles while the
  //| consumers finish.
  RingLaunch launch =
      plan_launch(spec, groups * kRowsPerWarpgroup, keys, begin_at, true, even, false, INT_MAX);
  launch.boxes = true;
  //| An item of 64 rows and sixteen parts keeps its last block busy for longer than a second kernel would
  //| need, which spreads the rows over all multiprocessors. But that kernel has a block per row, and if there
  //| are many rows, most of its blocks find nothing to merge. With few rows it is launched even if the
  //| lengths on the device may leave it without work: it starts early, so that costs little.
  const int64_t rows_of_grid = int64_t(spec.batch) * int(launch.plan.items_of_sequence) * launch.rows;
  if (rows_of_grid <= kFewRows) launch.plan.parts_of_last = 4;
  return launch;
}

constexpr int64_t kArrivalBytes = kMaxRingBlocks * kMaxRingWarps * int64_t(sizeof(unsigned));

/// Returns the bytes of the ring's workspace: counters, and two parts per block. Equal parts that are whole
/// items need none.
inline int64_t ring_workspace_bytes(const Sizes& sizes, const RingLaunch& launch) {
  if (!launch.plan.equal_work && launch.plan.parts == 1) return 0;
  const int64_t places = 2 * int64_t(launch.blocks) * launch.rows;
  return kArrivalBytes + places * (tile_columns(sizes.head_dim) + 1) * int64_t(sizeof(float));
}

inline Workspace ring_workspace(void* memory, const Sizes& sizes, const RingLaunch& launch) {
  const int64_t places = 2 * int64_t(launch.blocks) * launch.rows;
  auto* arrivals = static_cast<unsigned*>(memory);
  auto* o = reinterpret_cast<float*>(static_cast<unsigned char*>(memory) + kArrivalBytes);
  return {.partials = {o, o + places * tile_columns(sizes.head_dim)}, .arrivals = arrivals, .whole = {}};
}

//| A cache that would fill the L2 several times over evicts its earlier contents, and dirty lines must be
//| written to memory first. A small cache is read as *evict first*, so that its lines replace one another.
/// Bytes of keys and values up to which the L2 should keep none of them.
constexpr double kEvictFirstBytes = 128e6;

/// Returns the cache, in tiles of `tile_keys` keys. `boxes`: step 9 reads it.
inline Cache cache_of(const Spec& spec, const Tensors& t, int tile_keys, bool boxes) {
  const int page_rows = spec.paging.rows > 0 ? spec.paging.rows : spec.seqlen_k;
  const auto bytes = int64_t(size_of(type_of(spec, TensorId::k)));
  const auto in_bytes = [&](TensorId tensor) {
    const Strides strides = spec.strides(tensor);
    return Strides{strides.batch * bytes, strides.head * bytes, strides.row * bytes};
  };
  const int copy_rows = copy_rows_of(spec, tile_keys, boxes);
  return {.k = static_cast<const unsigned char*>(t.k),
          .v = static_cast<const unsigned char*>(t.v),
          .k_strides = in_bytes(TensorId::k),
          .v_strides = in_bytes(TensorId::v),
          .table = static_cast<const int*>(t.tables[int(TableId::page_table)]),
          .page_bits = page_rows >= spec.seqlen_k ? 30 : std::countr_zero(unsigned(page_rows)),
          .pages_of_sequence = ceil_div(spec.seqlen_k, page_rows),
          .copy_rows = copy_rows,
          .copies = std::min(tile_keys / copy_rows, 32),
          .keep = 2.0 * double(spec.k_elements()) * double(bytes) <= kEvictFirstBytes ? KeepInL2::evict_first
                                                                                      : KeepInL2::normal};
}

//| Scales of an e4m3 cache are addressed by three strides: a single scale is at offset 0 for every index. A
//| page's keys belong to all sequences that share it.
/// cache_of, with everything else that the configuration reads.
template <typename Traits>
CacheOf<Traits> cache_of(const Spec& spec, const Tensors& t, bool boxes = false) {
  const Cache cache = cache_of(spec, t, Traits::kKeys, boxes);
  if constexpr (Traits::kElementBytes == 2) {
    return cache;
  } else {
    const bool by_group = spec.e4m3.scaling == Scaling::block, paged = spec.paging.rows > 0;
    const int groups = by_group && !paged ? ceil_div(spec.seqlen_k, kKeysPerScale) : 1;  // scales per head
    return {cache,
            t.k_scale,
            t.v_scale,
            (by_group && paged) || spec.e4m3.scaling == Scaling::tensor ? 0 : spec.kv_heads * groups,
            spec.e4m3.scaling == Scaling::tensor ? 0 : groups,
            !by_group ? 0
            : paged   ? spec.kv_heads
                      : 1,
            std::countr_zero(unsigned(kKeysPerScale))};
  }
}

//| A map's rows end with the page, or without pages with the sequence, and boxes past that end load zeros.
/// Returns the map of K or V whose boxes are `box_keys` keys by `box_columns` columns of a head: {column, key
/// in its page, key head, page}.
inline CUtensorMap box_map(const Spec& spec, const Tensors& t, TensorId id, int box_keys, int box_columns,
                           Swizzle swizzle) {
  const DType type = type_of(spec, id);
  const Strides strides = spec.strides(id);
  const uint64_t bytes = size_of(type);
  const std::vector<int64_t> dims = dims_of(spec, id);  // [batch or pages, heads, rows, head_dim]
  return device::tensor_map(
      {.dtype = type,
       .base = id == TensorId::k ? t.k : t.v,
       .size = {uint64_t(dims[3]), uint64_t(dims[2]), uint64_t(dims[1]), uint64_t(dims[0])},
       .stride = {strides.row * bytes, strides.head * bytes, strides.batch * bytes},
       .box = {uint32_t(box_columns), uint32_t(box_keys), 1, 1},
       .swizzle = swizzle});
}

/// Returns step 9's maps of a cache in tiles of `tile_keys` keys.
inline KeyMaps key_maps(const Spec& spec, const Tensors& t, int tile_keys) {
  if (!fits_boxes(spec, tile_keys)) return {};
  const auto map = [&](TensorId id) {
    return box_map(spec, t, id, box_keys_of(spec, tile_keys), spec.head_dim, Swizzle::none);
  };
  return {map(TensorId::k), map(TensorId::v), true};
}

/// Returns the most parts that an item can have. With equal work all items of a sequence have one size, so
/// one has at most its share of all units; and the smallest share of a block is at least half the largest. A
/// member of the teams has at most as many as there are teams. `packs`: the fewest items that a sequence has.
inline int most_parts(const Plan& plan, int blocks, int packs) {
  return plan.equal_work ? std::min(2 * blocks / packs + 2, blocks / int(plan.team)) : int(plan.parts);
}

/// Launches the kernel that merges items of many parts, if there may be any. `blocks`: those of the kernel
/// that stores the parts.
template <typename T, typename Traits, typename PlanType>
void launch_merge_many(const Problem& problem, const Workspace& workspace, const Tensors& t,
                       device::Stream stream, int blocks, const PlanType& plan) {
  int fewest = plan.items_of_sequence;
  if constexpr (PlanType::kRagged)
    if (plan.first_query != nullptr)
      fewest = problem.packs;  // a sequence of few queries has one tile of rows
  if (most_parts(plan, blocks, fewest) <= plan.parts_of_last) return;
  device::launch_dependent(merge_many<T, Traits, PlanType>,
                           dim3(Traits::kRows, problem.batch * plan.items_of_sequence), dim3(kManyWarps * 32),
                           0, stream, workspace, static_cast<T*>(t.o), t.lse, blocks, problem, plan);
}

/// Launches the ring and, if an item may have many parts, the kernel that merges them. `plan` is a Plan, or
/// Rules. `maps`: for step 9, or null. With rules, or elements of one byte, only step 9's kernel exists.
template <typename T, typename Traits, typename PlanType>
void run_ring(const Problem& problem, const CacheOf<Traits>& cache, const KeyMaps* maps,
              const Workspace& workspace, const Tensors& t, device::Stream stream, int blocks,
              const PlanType& plan) {
  constexpr bool kIsPlain = std::is_same_v<PlanType, Plan> && Traits::kElementBytes == 2;
  const auto launch = [&](auto kernel, int producers, const auto&... first) {
    device::launch(kernel, dim3(blocks), dim3(Traits::kConsumers + producers * 32),
                   sizeof(RingShared<Traits>), stream, first..., static_cast<const T*>(t.q),
                   static_cast<T*>(t.o), t.lse, cache, workspace, problem, plan);
  };
  if constexpr (kIsPlain)
    if (maps == nullptr) launch(ring<T, Traits, PlanType>, 1);
  if (!kIsPlain || maps != nullptr)
    launch(ring_of_boxes<T, Traits, PlanType>, kBoxProducers, maps == nullptr ? KeyMaps{} : *maps);
  launch_merge_many<T, Traits>(problem, workspace, t, stream, blocks, plan);
}

inline Workspace workspace_of(const Spec& spec, const Tensors& t, const RingLaunch& launch) {
  return ring_workspace_bytes(spec, launch) == 0 ? Workspace{} : ring_workspace(t.workspace, spec, launch);
}

/// Launches the ring for a whole problem. `plan` is the plan of `launch`, possibly with rules.
template <typename T, typename Traits, typename PlanType>
void run_ring(const Spec& spec, const Problem& problem, const Workspace& workspace, const Tensors& t,
              device::Stream stream, const RingLaunch& launch, const PlanType& plan) {
  const CacheOf<Traits> cache = cache_of<Traits>(spec, t, launch.boxes);
  if (!launch.boxes)
    return run_ring<T, Traits>(problem, cache, nullptr, workspace, t, stream, launch.blocks, plan);
  const KeyMaps maps = key_maps(spec, t, Traits::kKeys);
  run_ring<T, Traits>(problem, cache, &maps, workspace, t, stream, launch.blocks, plan);
}

template <typename T, typename Traits>
void run_ring(const Spec& spec, const Tensors& t, device::Stream stream, const RingLaunch& launch) {
  run_ring<T, Traits>(spec, problem_of(spec, t, spec.heads / spec.kv_heads), workspace_of(spec, t, launch), t,
                      stream, launch, launch.plan);
}

/// Calls `body` with the configuration, its template argument, with as many rows as the shape needs.
template <int kHeadDim, int kElementBytes = 2, typename Body>
void with_rows(const Spec& spec, Body body) {
  const int row_tiles = ring_row_tiles(spec);
  if (row_tiles == 1)
    return body.template
    operator()<RingKernelTraits<RingSizes{.head_dim = kHeadDim, .element_bytes = kElementBytes}>>();
  if constexpr (kHeadDim < 256) {
    if (row_tiles == 2)
      return body.template operator()<RingKernelTraits<RingSizes{
          .head_dim = kHeadDim, .row_tiles = 2, .element_bytes = kElementBytes}>>();
    body.template operator()<
        RingKernelTraits<RingSizes{.head_dim = kHeadDim, .row_tiles = 4, .element_bytes = kElementBytes}>>();
  }
}

}  // namespace flashbook::decoding
