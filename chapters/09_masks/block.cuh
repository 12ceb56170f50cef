//| # The block
//|
//| Shared memory is that of chapter 5's step 5, with four differences. The broadcast of the next tile of queries is a `Work`:
//| where rows lie, and how many tiles of keys come. `TileBallot` tells the thread that streams which tiles these are. A word beside
//| each stage of the pipeline has its tile's first key. And by the barrier `near_end` that thread tells the warp that decides that
//| the next tile of queries is wanted.
//|
//| ![Warp 3 decides on a row, thread 0 streams its tiles, two more threads bring queries and store outputs; what lies between them and the consumers, and the barriers](../../docs/figures/masks_block.svg)
#pragma once
#include <type_traits>

#include "chapters/09_masks/problem.cuh"
#include "common/hopper/block.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/tiles.h"

namespace flashbook::masks {

constexpr int kWorkStages = 4;  ///< tiles of queries: the one at work, and others whose keys are under way

/// The broadcast is a pipeline too: one thread fills it, and all others read.
using WorkBroadcast = Pipeline<Work, kWorkStages>;

//| The warp that decides passes tiles on in words of bits, as its ballots give them.
/// Up to 32 tiles of keys of one class.
struct TileBallot {
  Span span;
  int first;       ///< which candidate
  uint32_t tiles;  ///< bit i: candidate `first` + i is one of them
};

constexpr int kBallotStages =
    1;  ///< more would only wait there: decisions are made shortly before they are needed

//| The barriers of a consumer are chapter 5's ([`block.h`](../../common/hopper/block.h)).
//| Of the whole block there is one more, `near_end`: the thread that streams arrives, once for each tile of queries, and lane 0 of the
//| warp that decides waits, first for parity 0.
/// Shared memory of a block.
template <typename T, typename Traits>
struct BlockShared {
  using KeyTile = Tile<T, Traits::kKeys, Traits::kHeadDim>;
  using QueryTile = Tile<T, kRowsOfWarpgroup, Traits::kHeadDim>;

  QueryTile q[Traits::kConsumers];
  Pipeline<KeyTile, Traits::kStages> pipeline;
  std::conditional_t<Traits::kStoreByTma, QueryTile, Nothing> output[Traits::kConsumers];
  WorkBroadcast work;
  Pipeline<TileBallot, kBallotStages> ballots;
  int first_key[Traits::kStages];  ///< of the keys in a stage
  BlockBarriers<Traits::kConsumers> barriers;
  uint64_t near_end;  ///< the thread that streams arrives when the next tile of queries is wanted
};

//| Each count is the number of those who arrive: one thread for `near_end`, all warps of the consumers for the stages of the pipeline.
/// One thread makes the barriers, before the block's first __syncthreads. `ballot_readers`: threads, or
/// warps.
template <typename T, typename Traits>
__device__ inline void initialise(BlockShared<T, Traits>& shared, int ballot_readers) {
  initialise(shared.pipeline, 1, Traits::kConsumers * kWarpsOfWarpgroup, "full", "empty");
  // Read by all warps of the consumers, by the threads that stream and bring queries, and by the one that
  // stores.
  initialise(shared.work, 1, Traits::kConsumers * kWarpsOfWarpgroup + (Traits::kStoreByTma ? 3 : 2),
             "work_full", "work_empty");
  initialise(shared.ballots, 1, ballot_readers, "ballot_full", "ballot_empty");
  mbarrier_init(&shared.near_end, 1);
  name_mbarrier(&shared.near_end, "near_end", 0);
  initialise(shared.barriers);
  fence_mbarrier_init();
}

//| A thread of the producer copies what it reads and gives the place back at once. A consumer has no register to spare for a copy
//| of the work at d = 64 and d = 256. It reads the work where it lies, and gives the place back when the tile is done.
/// Writes what comes next. One thread.
template <typename T, int kStages>
__device__ __forceinline__ void publish(Pipeline<T, kStages>& broadcast, const PipelineState<kStages>& state,
                                        const T& next) {
  wait_empty(broadcast, state);  // all have read what stood here before
  broadcast.tile[state.stage] = next;
  mbarrier_arrive(&broadcast.full[state.stage]);
}

/// A copy of what comes next. One thread, lane 0 of its warp.
template <typename T, int kStages>
__device__ __forceinline__ T next_of(Pipeline<T, kStages>& broadcast, PipelineState<kStages>& state) {
  wait_full(broadcast, state);
  const T next = broadcast.tile[state.stage];
  release(broadcast, state);
  state.advance();
  return next;
}

}  // namespace flashbook::masks
