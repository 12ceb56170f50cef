//| # How step 6 is launched
//|
//| This is the host's part: the layout of the workspace, the shape's mask, and the kernels in one stream: D
//| and the log-sum-exp, the mask's preparation, lists, gradients, dQ's rounding. The preparation is step 2's
//| plan for packed documents, step 4's scan for FlashMask, or step 5's classes for a mask of pairs; other
//| masks need none.
//|
//| ![Four masks in tiles: the lists have the tiles of a column that are not
//| skipped](../../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/score_functions.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/host/varlen_map.cuh"
#include "chapters/09_masks/step6_backward.cuh"

namespace flashbook::masks {

//| ## What kind of mask
//|
//| Documents of one batch entry are packed sequences with their own tiles, so that no tile holds rows of two.
//| Intervals, listed blocks and masks of pairs count queries and keys over all documents, so with one of them
//| documents are a part of the mask.
/// Returns whether documents have their own tiles.
inline bool is_varlen(const Spec& spec) {
  const Visibility& v = spec.visibility;
  return spec.batch == 1 && !v.documents.first_query.empty() && v.columns.bounds == 0 &&
         v.blocks.queries == 0 && v.dense.empty();
}

/// Returns whether the mask is evaluated pair by pair.
inline bool is_by_pairs(const Visibility& v) { return !v.dense.empty() || v.blocks.queries > 0; }

inline int64_t tiles_of(int64_t rows, int per_tile) { return ceil_div(rows, per_tile); }

/// The number of masks in a launch, which is the number of lists per key tile, and how many heads share one.
struct MaskCount {
  int per_batch;  ///< 0: all batch entries share them
  int heads;      ///< query heads that share one
  int masks;      ///< masks in total
};
inline MaskCount masks_of(const Spec& spec) {
  const Visibility& v = spec.visibility;
  if (!v.dense.empty()) return {spec.heads, 1, spec.batch * spec.heads};
  if (v.columns.bounds == 0) return {0, spec.heads, 1};
  if (v.columns.heads == 1) return {1, spec.heads, spec.batch};
  return {spec.kv_heads, spec.heads / spec.kv_heads, spec.batch * spec.kv_heads};
}

//| ## The workspace
//|
//| The workspace holds sums of dQ and two numbers per row, as in chapter 7, and the lists. Only the device
//| knows how long the lists are, so there is room for the longest: a word for each pair of tiles. Each packed
//| document may have one more tile of queries and one more of keys.
/// Bytes of the parts of the workspace, one after another, and what they depend on.
struct WorkspaceLayout {
  static constexpr int kLeastQueries = 64;  ///< per tile, at any head dimension
  int64_t rows;                             ///< rows of the workspace: [batch, heads, padded_q]
  int padded_q;
  int documents;  ///< packed sequences, or 0
  int key_tiles;  ///< per head, or a few more
  int64_t lists, entries, hidden, classes;

  explicit WorkspaceLayout(const Spec& spec) {
    const Documents& d = spec.visibility.documents;
    documents = is_varlen(spec) ? int(d.first_query.size()) - 1 : 0;
    padded_q = documents > 0 ? (spec.seqlen_q / kWorkspaceRows + documents) * kWorkspaceRows
                             : int(tiles_of(spec.seqlen_q, kWorkspaceRows)) * kWorkspaceRows;
    rows = int64_t(spec.batch) * spec.heads * padded_q;
    const int64_t masks = masks_of(spec).masks, query_tiles = tiles_of(spec.seqlen_q, kLeastQueries);
    key_tiles =
        documents > 0 ? spec.seqlen_k / kTileKeys + documents : int(tiles_of(spec.seqlen_k, kTileKeys));
    lists = masks * key_tiles;
    // k tiles of keys times q of queries, summed over documents whose lengths the host need not know.
    entries = masks * tiles_of(spec.seqlen_k, kTileKeys) * query_tiles +
              (documents > 0 ? key_tiles + query_tiles : 0);
    hidden = spec.visibility.columns.bounds > 0 ? lists : 0;
    classes = is_by_pairs(spec.visibility) ? lists * query_tiles : 0;
  }

  int64_t semaphores() const { return rows / kLeastQueries * kKeyConsumers; }

  /// `in_turns` is for step 7: adds semaphores and a turn per entry.
  int64_t bytes(int columns, bool in_turns) const {
    return rows * int64_t(sizeof(float)) * (2 + columns) +
           hidden * int64_t(sizeof(HiddenOfTile) + kTileKeys * sizeof(Hidden)) +
           lists * int64_t(sizeof(QueryList)) +
           int64_t(sizeof(int)) * (3 + (documents > 0 ? 2 * documents + 1 : 0) + entries + classes +
                                   (in_turns ? semaphores() + entries : 0));
  }
};

/// Hands out the parts of the workspace, one after another.
struct BumpAllocator {
  char* at;

  template <typename T>
  T* take(int64_t count) {
    T* const first = reinterpret_cast<T*>(at);
    at += count * int64_t(sizeof(T));
    return first;
  }
};

//| ## The kernels' view of the shape

inline GradientProblem gradient_problem_of(const Spec& spec, const Tensors& t, const WorkspaceLayout& layout,
                                           float score_offset, bool in_turns) {
  GradientProblem problem;
  static_cast<Problem&>(problem) = problem_of(spec);
  problem.kv_heads = spec.kv_heads;
  problem.scale = spec.scale;
  problem.score_offset = score_offset;
  problem.in_turns = in_turns;
  problem.value_dim = spec.value_dim;
  problem.padded_q = layout.padded_q;
  if (layout.documents > 0) {
    problem.varlen = documents_of(spec, t);
    problem.q_map_strides = varlen_strides(spec, TensorId::q),
    problem.d_o_map_strides = varlen_strides(spec, TensorId::d_o);
    problem.k_map_strides = varlen_strides(spec, TensorId::k),
    problem.v_map_strides = varlen_strides(spec, TensorId::v);
  }
  problem.at = layout_given(spec);
  return problem;
}

//| ## The launches

/// The version for the widths of keys and values.
template <int kHeadDim, int kValueDim, Sums kSums>
using VersionOf =
    std::conditional_t<kHeadDim != kValueDim, WideTraits, GradientKernelTraits<kHeadDim, kSums>>;

/// Launches the gradient kernel for all gradients or, at d = 256, for some of them.
template <typename T, typename Traits, typename Mask, typename Score>
void run_gradients_of(const Spec& spec, const Tensors& t, device::Stream stream,
                      const GradientWorkspace& workspace, const WorkspaceLayout& layout,
                      const GradientProblem& problem, const KeyTiles& tiles, const Lists& lists,
                      const Mask& mask, const Score& score) {
  const auto map = [&](TensorId id, const void* base, int rows) {
    return layout.documents > 0 ? varlen_map(spec, id, base, rows) : tile_map(spec, id, base, rows);
  };
  //| The halves of a tile of 192 columns do not begin at multiples of 64.
  const auto key_map = [&] {
    if (!Traits::kWide) return map(TensorId::k, t.k, kTileKeys);
    return layout.documents > 0 ? varlen_panel_map(spec, TensorId::k, t.k, kTileKeys)
                                : panel_map(spec, TensorId::k, t.k, kTileKeys);
  };
  const int64_t most_tiles = int64_t(spec.batch) * spec.kv_heads * layout.key_tiles;
  const int blocks = int(std::min<int64_t>(most_tiles, device::multiprocessors()));
  device::launch_dependent(masked_backward<T, Traits, Mask, Score>, dim3(blocks), dim3(Traits::kThreads),
                           sizeof(GradientShared<T, Traits>), stream, map(TensorId::q, t.q, Traits::kQueries),
                           key_map(), map(TensorId::v, t.v, kTileKeys),
                           map(TensorId::d_o, t.d_o, Traits::kQueries),
                           row_map(workspace.lse, layout.rows, Traits::kQueries),
                           row_map(workspace.d, layout.rows, Traits::kQueries), static_cast<T*>(t.dk),
                           static_cast<T*>(t.dv), static_cast<T*>(t.dq), workspace.dq, problem, tiles, lists,
                           mask, score, workspace.counters + (Traits::kSums == Sums::values ? 1 : 0));
}

//| Where dK and dV do not fit in registers together, one kernel sums dK and dQ, and another dV. With 256
//| columns that is so for every mask. A softcap needs this at every head dimension: P, its
//| product with the slope, dP, dK and dV are 224 registers at d = 64 and 208 at d = 128, and in one kernel
//| nvcc spilled 84 and 4 bytes.
/// Makes all launches with one mask and one function on scores. `mask_of(...)` makes the mask, and first
/// launches the kernels that the mask needs.
template <typename T, int kHeadDim, int kValueDim = kHeadDim, typename MaskOf, typename Score>
void run_with_mask(const Spec& spec, const Tensors& t, device::Stream stream, bool in_turns,
                   const MaskOf& mask_of, const Score& score) {
  constexpr bool kSplit = kHeadDim == 256 || kHasSlope<Score>;
  using Traits = VersionOf<kHeadDim, kValueDim, kSplit ? Sums::values : Sums::all>;
  constexpr int kQueries = Traits::kQueries;
  const WorkspaceLayout layout(spec);
  const MaskCount count = masks_of(spec);
  BumpAllocator left{static_cast<char*>(t.workspace)};
  GradientWorkspace workspace;
  workspace.lse = left.take<float>(layout.rows);
  workspace.d = left.take<float>(layout.rows);
  workspace.dq = left.take<float>(layout.rows * kHeadDim);
  auto* const hidden = left.take<Hidden>(layout.hidden * kTileKeys);
  const Scanned scanned{layout.hidden > 0 ? hidden : nullptr,
                        layout.hidden > 0 ? left.take<HiddenOfTile>(layout.hidden) : nullptr};
  auto* const per_tile = left.take<QueryList>(layout.lists);
  workspace.counters = left.take<int>(2), workspace.entries = left.take<int>(1);
  int* const sorted = left.take<int>(layout.documents > 0 ? 2 * layout.documents + 1 : 0);
  int* const entries = left.take<int>(layout.entries);
  auto* const classes = left.take<TileClass>(layout.classes);

  int* const turns = left.take<int>(in_turns ? layout.entries : 0);
  workspace.semaphores = left.take<int>(in_turns ? layout.semaphores() : 0);

  float score_offset = 0;
  if constexpr (Score::kExtras.changes) score_offset = score.score_offset;
  GradientProblem problem = gradient_problem_of(spec, t, layout, score_offset, in_turns);
  constexpr bool kCanStore = Traits::kAddByTma && std::is_same_v<Score, Unchanged>;
  problem.stores_dq = kCanStore && spec.seqlen_k <= int64_t(layout.documents) * kTileKeys;
  device::launch(prepare<T, kValueDim, kQueries, kHeadDim>,
                 dim3(unsigned(tiles_of(layout.rows, kPrepareRows<kValueDim>))), dim3(kPrepareThreads), 0,
                 stream, static_cast<const T*>(t.o), static_cast<const T*>(t.d_o),
                 static_cast<const float*>(t.lse), t.d_lse, workspace, layout.rows, problem);
  //| The plan is that of the forward pass, with keys and queries exchanged.
  const Plan plan{sorted, sorted + layout.documents};
  if (layout.documents > 0) {
    const int *queries_end = problem.varlen.first_query + layout.documents,
              *keys_end = problem.varlen.first_key + layout.documents;
    const OpenEnds open{{open_end(spec, TensorId::dq, t.dq, queries_end),
                         open_end(spec, TensorId::dk, t.dk, keys_end),
                         open_end(spec, TensorId::dv, t.dv, keys_end)}};
    device::launch_dependent(
        make_plan<kTileKeys, kQueries, Packed>, dim3(1 + clearing_blocks(open)), dim3(kPlanThreads), 0,
        stream, Packed{{problem.varlen.first_key, problem.varlen.first_query, problem.varlen.count}}, plan,
        open);
  }
  const auto mask = mask_of(layout, problem, scanned, classes);
  //| Blocks read about one document of a key head at a time, so a section has as many heads as fit with one
  //| of average length. If a section were smaller, its few tiles would often end with a long one.
  const int documents = std::max(layout.documents, 1);
  const int key_tiles = int(tiles_of(spec.seqlen_k, kTileKeys)),
            heads = kv_heads_of_gradient_section(spec, ceil_div(spec.seqlen_q, documents));
  const KeyTiles tiles{{spec.batch * spec.kv_heads * key_tiles, key_tiles, spec.batch, spec.kv_heads, heads,
                        in_turns || is_uneven(spec.visibility)},
                       plan,
                       heads,
                       in_turns};
  const Lists lists{
      per_tile,        entries,    in_turns ? turns : nullptr, workspace.semaphores, layout.key_tiles,
      count.per_batch, count.heads};
  constexpr int kTilesPerBlock = kListThreads / 32;
  device::launch_dependent(list_queries<kTileKeys, kQueries, std::remove_const_t<decltype(mask)>>,
                           dim3(unsigned(tiles_of(layout.key_tiles, kTilesPerBlock)), unsigned(count.masks)),
                           dim3(kListThreads), 0, stream, mask, problem, tiles, lists,
                           !in_turns && spec.visibility.window.right < 0, workspace.entries);
  if (in_turns)
    device::launch(number_turns<kTileKeys, kQueries, std::remove_const_t<decltype(mask)>>,
                   dim3(unsigned(tiles_of(layout.key_tiles, kTilesPerBlock)), unsigned(count.masks)),
                   dim3(kListThreads), 0, stream, mask, problem, tiles, lists);

  const auto run = [&]<typename Version>() {
    run_gradients_of<T, Version>(spec, t, stream, workspace, layout, problem, tiles, lists, mask, score);
  };
  if constexpr (kSplit) run.template operator()<VersionOf<kHeadDim, kValueDim, Sums::keys_and_queries>>();
  if constexpr (kCanStore)
    if (problem.stores_dq) run.template operator()<Storing<Traits>>();
  if (!problem.stores_dq) run.template operator()<Traits>();
  device::launch_dependent(convert_dq<T, kHeadDim, kQueries>, dim3(unsigned(layout.rows / kQueries)),
                           dim3(kKeyConsumerThreads), 0, stream, static_cast<const float*>(workspace.dq),
                           static_cast<T*>(t.dq), problem);
}

//| ## Choosing the mask

/// Windows, documents and intervals, with a function on scores.
template <typename T, int kHeadDim, int kValueDim = kHeadDim, typename Score>
void run_by_intervals(const Spec& spec, const Tensors& t, device::Stream stream, bool in_turns,
                      const Score& score) {
  const auto mask_of = [&](const WorkspaceLayout& layout, const GradientProblem&, const Scanned& scanned,
                           TileClass*) {
    const MaskCount count = masks_of(spec);
    if (layout.hidden > 0) {
      const Visibility& v = spec.visibility;
      const ColumnBounds bounds{static_cast<const int*>(t.tables[int(TableId::columns)]), v.columns.bounds,
                                v.window.right == 0};
      constexpr int kTilesPerBlock = kScanThreads / 32;
      device::launch(scan_columns<kTileKeys>, dim3(unsigned(tiles_of(layout.hidden, kTilesPerBlock))),
                     dim3(kScanThreads), 0, stream, bounds, spec.seqlen_q, spec.seqlen_k, int(layout.hidden),
                     scanned);
    }
    return IntervalMask{band_of(spec.visibility),
                        layout.documents > 0 ? DocumentBounds{} : documents_of(spec, t),
                        scanned,
                        layout.key_tiles,
                        kTileKeys,
                        count.per_batch,
                        count.heads};
  };
  run_with_mask<T, kHeadDim, kValueDim>(spec, t, stream, in_turns, mask_of, score);
}

/// Launches the gradient with a mask of pairs or of blocks.
template <typename T, int kHeadDim>
void run_by_pairs(const Spec& spec, const Tensors& t, device::Stream stream, bool in_turns) {
  constexpr int kQueries = GradientKernelTraits<kHeadDim>::kQueries;
  const Visibility& v = spec.visibility;
  const auto table = [&](TableId id) { return static_cast<const int*>(t.tables[int(id)]); };
  const auto mask_of = [&](const WorkspaceLayout& layout, const GradientProblem& problem, const Scanned&,
                           TileClass* classes) {
    const int query_tiles = int(tiles_of(spec.seqlen_q, kQueries));
    const PairMask mask{
        v.dense.empty() ? nullptr : static_cast<const unsigned char*>(t.tables[int(TableId::dense)]),
        v.dense.heads,
        spec.seqlen_q,
        spec.seqlen_k,
        {{{0, spec.seqlen_q, 0, spec.seqlen_k}, ranges_of(spec, t)},
         table(TableId::block_first),
         table(TableId::block_keys),
         std::max(v.blocks.queries, 1),
         std::max(v.blocks.keys, 1)},
        classes,
        query_tiles,
        layout.key_tiles};
    device::launch(classify_tiles<kQueries, kTileKeys, PairMask>,
                   dim3(unsigned(tiles_of(layout.key_tiles, kClassifyThreads / 32)), unsigned(query_tiles),
                        unsigned(masks_of(spec).masks)),
                   dim3(kClassifyThreads), 0, stream, mask, problem, layout.key_tiles, classes);
    return mask;
  };
  run_with_mask<T, kHeadDim>(spec, t, stream, in_turns, mask_of, Unchanged{});
}

/// Steps 6 and 7 of wide keys, with a mask by intervals and no function on scores.
template <int kHeadDim, int kValueDim>
void run_wide_gradients(const Spec& spec, const Tensors& t, device::Stream stream, bool in_turns) {
  device::with_16_bit_type(spec.dtype, [&]<typename T>() {
    run_by_intervals<T, kHeadDim, kValueDim>(spec, t, stream, in_turns, Unchanged{});
  });
}

/// Steps 6 and 7 of a head dimension.
template <int kHeadDim>
void run_gradients(const Spec& spec, const Tensors& t, device::Stream stream, bool in_turns) {
  device::with_16_bit_type(spec.dtype, [&]<typename T>() {
    if (is_by_pairs(spec.visibility)) return run_by_pairs<T, kHeadDim>(spec, t, stream, in_turns);
    Ranges ranges = ranges_of(spec, t);
    if (is_varlen(spec)) ranges.documents = {};
    if (const RelativeBias& bias = spec.score.bias; !bias.values.empty()) {
      const auto count = int64_t(bias.values.size());
      if (t.d_bias != nullptr)
        device::launch(clear_floats, dim3(unsigned(ceil_div(count, int64_t(kClearThreads)))),
                       dim3(kClearThreads), 0, stream, t.d_bias, count);
      return run_by_intervals<T, kHeadDim>(spec, t, stream, in_turns,
                                           LearnedBias{bias_of(spec, t, ranges), t.d_bias});
    }
    with_function(spec, t, ranges, [&](const auto& score) {
      run_by_intervals<T, kHeadDim>(spec, t, stream, in_turns, score);
    });
  });
}

}  // namespace flashbook::masks
