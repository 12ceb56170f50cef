//| # The block
//|
//| Shared memory is that of chapter 5's step 5, with five differences. The broadcast of the next tile of
//| queries is a `Work`: where its rows are, and how many tiles of keys follow. `TileBallot` lists these tiles
//| for the streaming thread. A word next to each stage of the pipeline holds its tile's first key. The
//| streaming thread uses the barrier `near_end` to request the next tile of queries from the deciding warp.
//| And there are two places for queries, which outputs share.
//|
//| ![Warp 3 decides on a row, thread 0 streams its tiles, two more threads load queries and store outputs;
//| the memory between them and the consumers, and the barriers](../../docs/figures/masks_block.svg)
#pragma once
#include "chapters/09_masks/problem.cuh"
#include "common/hopper/block.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/tiles.h"

namespace flashbook::masks {

constexpr int kWorkStages = 4;  ///< tiles of queries: the current one, and others whose keys are in flight

/// The broadcast is a pipeline too: one thread fills it, and all others read.
using WorkBroadcast = Pipeline<Work, kWorkStages>;

//| The deciding warp passes tiles on as words of bits, just as its ballots return them.
/// Up to 32 tiles of keys of one class.
struct TileBallot {
  Span span;
  int first;       ///< the candidate of bit 0
  uint32_t tiles;  ///< bit i: candidate `first` + i is one of them
};

constexpr int kBallotStages =
    1;  ///< more would only wait there: decisions are made shortly before they are needed

//| ## Two places for queries
//|
//| Tiles of queries alternate between the two places, so the next ones are loaded while this tile's last
//| scores are still being computed. A consumer writes its output where its own queries were. TMA stores it
//| from there, which frees the place for the queries of the tile after next. At d = 256 shared memory has
//| room for only one. There the output is stored from registers, and the consumer itself releases the place.
//| A consumer has these barriers for each place:
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `q_full` | the thread that loads queries, with the bytes to come; then the bytes | 1 | the consumer | parity 0 |
//| | `output_full` | lane 0 of each of its warps, when all lanes have written | 4 | the thread that stores | parity 0 |
//| | `q_empty` | the thread that stores, when TMA has read the output; at d = 256 lane 0 of each of its warps, after its last scores | 1, or 4 | the thread that loads queries | parity 1 |
//|
//| All of them cycle through the places as through the stages of a pipeline, with the same kind of state.
/// The barriers at which consumers take their queries and hand over their outputs.
template <int kPlaces, int kConsumers>
struct QueryBarriers {
  uint64_t q_full[kPlaces][kConsumers], q_empty[kPlaces][kConsumers];
  uint64_t output_full[kPlaces][kConsumers];
};

//| The whole block has one more barrier, `near_end`: the streaming thread arrives once per tile of queries,
//| and lane 0 of the deciding warp waits, first for parity 0.
/// Tiles of queries, and the pipeline of keys and values.
template <typename T, typename Traits>
struct BlockTiles {
  using KeyTile = Tile<T, Traits::kKeys, Traits::kHeadDim>;
  using ValueTile = KeyTile;
  using QueryTile = Tile<T, kRowsPerWarpgroup, Traits::kHeadDim>;

  QueryTile q[Traits::kQueryPlaces][Traits::kConsumers];  ///< queries, then the output, if TMA stores it
  Pipeline<KeyTile, Traits::kStages> pipeline;

  __device__ auto& values() { return pipeline; }
};

//| If values are narrower than keys, they have a separate ring.
/// Tiles of queries, and separate rings for keys and values.
template <typename T, typename Traits>
requires Traits::kTwoRings struct BlockTiles<T, Traits> {
  using KeyTile = Tile<T, Traits::kKeys, Traits::kHeadDim>;
  using ValueTile = Tile<T, Traits::kKeys, Traits::kValueDim>;
  using QueryTile = Tile<T, kRowsPerWarpgroup, Traits::kHeadDim>;

  QueryTile q[Traits::kQueryPlaces][Traits::kConsumers];
  Pipeline<KeyTile, Traits::kStages> pipeline;  ///< keys
  Pipeline<ValueTile, Traits::kStages> value_ring;

  __device__ auto& values() { return value_ring; }
};

/// Shared memory of a block.
template <typename T, typename Traits>
struct BlockShared : BlockTiles<T, Traits> {
  WorkBroadcast work;
  Pipeline<TileBallot, kBallotStages> ballots;
  int first_key[Traits::kStages];  ///< first key of each stage's tile
  QueryBarriers<Traits::kQueryPlaces, Traits::kConsumers> barriers;
  uint64_t near_end;  ///< the streaming thread arrives to request the next tile of queries
};

//| One thread fills a place, and one stores its output, which comes from four warps.
/// Initialises the barriers of all places. `empties`: arrivals that free a place.
template <int kPlaces, int kConsumers>
__device__ inline void initialise(QueryBarriers<kPlaces, kConsumers>& barriers, int empties) {
  for (int place = 0; place < kPlaces; ++place)
    for (int i = 0; i < kConsumers; ++i) {
      const int at = place * kConsumers + i;
      mbarrier_init(&barriers.q_full[place][i], 1);
      name_mbarrier(&barriers.q_full[place][i], "q_full", at);
      mbarrier_init(&barriers.q_empty[place][i], empties);
      name_mbarrier(&barriers.q_empty[place][i], "q_empty", at);
      mbarrier_init(&barriers.output_full[place][i], kWarpsPerWarpgroup);
      name_mbarrier(&barriers.output_full[place][i], "output_full", at);
    }
}

//| The barriers count arrivals: one thread's at `near_end`, those of all consumer warps at the stages of the
//| pipeline.
/// Initialises the barriers, in one thread, before the block's first __syncthreads. `ballot_readers`:
/// threads, or warps.
template <typename T, typename Traits>
__device__ inline void initialise(BlockShared<T, Traits>& shared, int ballot_readers) {
  initialise(shared.pipeline, 1, Traits::kConsumers * kWarpsPerWarpgroup, "full", "empty");
  if constexpr (Traits::kTwoRings)
    initialise(shared.value_ring, 1, Traits::kConsumers * kWarpsPerWarpgroup, "value_full", "value_empty");
  // Read by all warps of the consumers, by the threads that stream and load queries, and by the one that
  // stores.
  initialise(shared.work, 1, Traits::kConsumers * kWarpsPerWarpgroup + (Traits::kStoreByTma ? 3 : 2),
             "work_full", "work_empty");
  initialise(shared.ballots, 1, ballot_readers, "ballot_full", "ballot_empty");
  mbarrier_init(&shared.near_end, 1);
  name_mbarrier(&shared.near_end, "near_end", 0);
  initialise(shared.barriers, Traits::kStoreByTma ? 1 : kWarpsPerWarpgroup);
  fence_mbarrier_init();
}

//| A thread of the producer copies the work and releases its place at once. At d = 64 and d = 256 a consumer
//| has no registers to spare for a copy, so it reads the work in place and releases it when the tile is done.
/// Broadcasts the next work. Called by one thread.
template <typename T, int kStages>
__device__ __forceinline__ void publish(Pipeline<T, kStages>& broadcast, const PipelineState<kStages>& state,
                                        const T& next) {
  wait_empty(broadcast, state);  // all have read what was here before
  broadcast.tile[state.stage] = next;
  mbarrier_arrive(&broadcast.full[state.stage]);
}

/// Returns a copy of the next work. Called by one thread, lane 0 of its warp.
template <typename T, int kStages>
__device__ __forceinline__ T next_of(Pipeline<T, kStages>& broadcast, PipelineState<kStages>& state) {
  wait_full(broadcast, state);
  const T next = broadcast.tile[state.stage];
  release(broadcast, state);
  state.advance();
  return next;
}

//| ## One ring or two
//|
//| In one ring a tile's keys are followed by the values of the tile before it. In two rings, tile n has the
//| n-th place of each. So a single state is enough, and the values of the previous tile are one place back.
/// The places of a tile's keys, and of the previous tile's values.
template <int kStages>
struct KeysAndValues {
  PipelineState<kStages> keys, values;
};

/// Returns the stages of the next tile and advances `state` past them.
template <typename Traits, int kStages>
__device__ __forceinline__ KeysAndValues<kStages> next_places(PipelineState<kStages>& state) {
  const PipelineState<kStages> keys = state;
  state.advance();
  if constexpr (Traits::kTwoRings) return {keys, keys.previous()};
  const PipelineState<kStages> values = state;
  state.advance();
  return {keys, values};
}

}  // namespace flashbook::masks
