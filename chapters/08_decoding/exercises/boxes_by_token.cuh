/// \file
/// Exercise ch08-boxes: keys and values of a cache by token, loaded in boxes.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::decoding {

// FlashInfer and vLLM can keep the keys and the values of a page in one tensor,
//
//     [pages, 2, page_keys, kv_heads, 64]
//
// where 0 is K and 1 is V. So a token's heads are neighbours, and one tensor map serves both. Its dimensions
// are {column, key in its page, key head, K or V, page}; a box is box_keys(cache) keys of one head, of K or
// of V.
//
// A page has 1, 2, 4, 8, ... keys. Each row of the table has the pages of one sequence, in the order of its
// keys. A box without any key of the sequence must not be requested, since there may be no page for it. The
// last requested box may reach past the sequence's last key.

constexpr int kStageKeys = 64, kStageColumns = 64;

/// A tile of keys and its values, with the barrier that completes when they have arrived. It takes one
/// arrival.
struct PairStage {
  alignas(128) __half k[kStageKeys][kStageColumns];
  __half v[kStageKeys][kStageColumns];
  uint64_t full;
};

/// The location of a sequence's keys.
struct TokenCache {
  const int* table;       ///< [sequences, pages_of_sequence]
  int pages_of_sequence;  ///< pages in a row of the table
  int page_keys;          ///< keys in a page
};

/// Keys in a box: a page, or as much of it as a stage holds.
__host__ __device__ inline int box_keys(const TokenCache& cache) {
  return cache.page_keys < kStageKeys ? cache.page_keys : kStageKeys;
}

// BEGIN EXERCISE ch08-boxes: a cache by token
/// Requests keys first_key ... first_key + kStageKeys - 1 of a sequence and their values, as far as they
/// exist: the sequence has `length` keys. `first_key` is a multiple of kStageKeys. One warp, all lanes.
__device__ __forceinline__ void bring(PairStage& stage, const CUtensorMap& map,
                                      [[maybe_unused]] const TokenCache& cache, int sequence, int head,
                                      [[maybe_unused]] int length, int first_key) {
  // TODO: this ignores the table, and a stage is one box
  if (threadIdx.x % 32 != 0) return;
  mbarrier_arrive_expect_tx(&stage.full, sizeof(stage.k) + sizeof(stage.v));
  tma_load(stage.k, map, &stage.full, {0, first_key, head, 0, sequence});
  tma_load(stage.v, map, &stage.full, {0, first_key, head, 1, sequence});
}
// END EXERCISE ch08-boxes

}  // namespace flashbook::decoding
