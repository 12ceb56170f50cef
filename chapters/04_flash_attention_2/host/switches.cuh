//| # The switches of step 5, each changed
//|
//| Step 5 changes several things at once. Its sizes and its switches are one type (`step5_tuned.cuh`), so a
//| type that derives from it can change one. The bench times each interleaved with unmodified step 5; the
//| tests compare each with the oracle.
//|
//| ![Causal tiles: skipped, masked, plain; and the order in which blocks take
//| them](../../../docs/figures/tile_classes.svg)
#pragma once
#include "chapters/04_flash_attention_2/host/launch.cuh"

namespace flashbook::fa2 {

/// Step 5, unchanged.
template <typename Traits>
struct AsItIs : Traits {};

//| ## The tile
//|
//| The first has twice as many warps, for the same tiles of queries and keys: each fragment of $K$ and $V$
//| serves 16 rows. The second has step 4's tile: a block takes 64 queries, so keys are also read twice as
//| often from the L2. At $d = 256$ a warp has 16 rows anyway.
/// 16 rows per warp, and twice as many warps.
template <typename Traits>
struct SixteenRows : KernelTraits<TunedSizes{.head_dim = Traits::kHeadDim,
                                             .warps = 2 * Traits::kWarps,
                                             .row_blocks = 1,
                                             .keep_queries = Traits::kKeepQueries,
                                             .blocks_per_sm = Traits::kBlocksPerSm}> {};

/// 16 rows per warp, and half as many queries per block.
template <typename Traits>
struct TileOfStep4 : KernelTraits<TunedSizes{.head_dim = Traits::kHeadDim,
                                             .warps = Traits::kWarps,
                                             .row_blocks = 1,
                                             .keep_queries = Traits::kKeepQueries,
                                             .blocks_per_sm = Traits::kBlocksPerSm}> {};

/// Q is read again with every tile where step 5 keeps it in registers, at d = 64.
template <typename Traits>
struct QueriesAgain : Traits {
  static constexpr bool kKeepQueries = false;
};

//| ## Work that need not be done
//|
//| The last two matter only under a causal mask.
/// Compares every tile with the mask.
template <typename Traits>
struct OneLoop : Traits {
  static constexpr bool kSplitLoops = false;
};

/// Visits every key tile, seen or not.
template <typename Traits>
struct AllTiles : Traits {
  static constexpr bool kSkipsHidden = false;
};

/// Starts with the first queries, which see the fewest keys.
template <typename Traits>
struct ShortestFirst : Traits {
  static constexpr bool kLongestFirst = false;
};

}  // namespace flashbook::fa2
