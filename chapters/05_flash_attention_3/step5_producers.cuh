//| # The producers of step 5
//|
//| The producer warpgroup has three active threads now, each in a warp of its own, so that none waits for
//| another. One streams keys and values. One brings each consumer its next queries as soon as that consumer
//| has computed its last scores with the old ones. One has the outputs stored. `common/hopper/block.h` has
//| the barriers at which they and the consumers meet, `common/hopper/tile_scheduler.h` how all of them learn
//| of the next tile.
//|
//| ![Three threads of warpgroup 0 and the consumers, what they share in memory, and its
//| barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include "chapters/05_flash_attention_3/step2_specialised.cuh"
#include "common/hopper/block.h"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::fa3 {

//| ## Keys and values
//|
//| This thread runs ahead of all others. When it has requested the last keys of one tile of queries, it takes
//| the next tile, broadcasts it and goes on filling stages, while the consumers still work on the one before.
//| The counter that hands out tiles resets itself.
/// The thread that decides on the next tile, broadcasts it and streams its keys and values.
template <typename Traits, typename Shared>
__device__ void produce_keys(Shared& shared, const TileMap& k_map, const TileMap& v_map,
                             const Problem& problem, const TileOrder& order, int* counter) {
  PipelineState<Traits::kStages> state;
  hand_out_tiles<Traits::kSchedule, true>(shared.broadcast, order, counter, [&](const WorkTile& work) {
    const int key_tiles = problem.key_tiles((work.query_tile + 1) * Traits::kRows - 1, Traits::kKeys);
    stream<Traits, true>(shared.pipeline, state, k_map, v_map, key_tiles, problem.kv_head(work.head));
  });
}

//| ## Queries
//|
//| This thread knows no schedule: it takes each tile from the broadcast, as the consumers do, and lags behind
//| the thread above.
/// The thread that brings queries.
template <typename Traits, typename Shared>
__device__ void produce_queries(Shared& shared, const TileMap& q_map) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {  // of the tiles of queries that this block has had
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    load_queries(shared, q_map, parity, work.query_tile * Traits::kRows, work.head);
  }
}

//| ## Outputs
//|
//| The same loop once more, one tile later: an output is complete when the last product of its tile is.
/// The thread that has outputs stored.
template <typename Traits, typename Shared>
__device__ void consume_outputs(Shared& shared, const TileMap& output_map) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    store_outputs(shared, output_map, parity, work.query_tile * Traits::kRows, work.head);
  }
}

}  // namespace flashbook::fa3
