//| # The producers of step 5
//|
//| The producer warpgroup has three threads at work now, each in a warp of its own, so that none waits for what another
//| waits for. One streams keys and values. One brings each consumer its next queries as soon as that has computed its last
//| scores with the old ones. One has the outputs stored. They and the consumers meet at these barriers, besides those of
//| the pipeline and the broadcast of the next tile:
//|
//| | barrier of a consumer | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `q_full` | the thread that brings queries, with the bytes to come; then the bytes | 1 | the consumer | parity 0 |
//| | `q_empty` | lane 0 of each of its warps, when its last scores are computed | 4 | that thread | parity 1 |
//| | `output_full` | lane 0 of each of its warps, when all lanes have written | 4 | the thread that stores | parity 0 |
//| | `output_empty` | the thread that stores, when TMA has read the tile | 1 | the consumer | parity 1 |
//|
//| Each has one phase for every tile of queries that the block works on, so its parity changes from one tile to the next.
//|
//| ![Three threads of warpgroup 0 and the consumers, what lies between them in shared memory, and its barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include "chapters/05_flash_attention_3/tile_scheduler.cuh"

namespace flashbook::flash3 {

//| ## Keys and values
//|
//| This thread runs ahead of all others. As soon as the last keys of one tile of queries are sent, it broadcasts the next tile and
//| goes on filling stages, while the consumers still work on the one before. The schedule says which tile is next: none,
//| the one gridDim.x further on, or what the counter gives. The counter's answer takes hundreds of clocks, so it is asked
//| for before the keys are streamed.
//|
//| **The counter resets itself.** A block asks once for each tile that it works on, so all blocks together ask `tiles` times. The block
//| that is told `tiles - 1` has asked last, and sets the counter to 0 for the next launch. Otherwise each launch would need another one
//| before it that clears the counter, and short sequences would be slower.
/// The thread that decides on the next tile, broadcasts it and streams its keys and values.
template <typename Config, typename Shared>
__device__ void produce_keys(Shared& shared, const CUtensorMap& k_map, const CUtensorMap& v_map,
                             const Problem& problem, const TileOrder& order, int* counter) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  PipelineState<Config::kStages> state;
  int index = blockIdx.x;
  for (uint32_t round = 0;; ++round) {
    const WorkTile work = tile_at(order, index);
    publish(shared.broadcast, round, work);
    if (work.query_tile < 0) return;
    if constexpr (Config::kSchedule == Schedule::single_tile) index = order.tiles;
    if constexpr (Config::kSchedule == Schedule::static_persistent) index += gridDim.x;
    // Asked for now, needed when this tile's keys are under way: nobody waits for the answer.
    if constexpr (Config::kSchedule == Schedule::dynamic_persistent)
      index = gridDim.x + atomicAdd(counter, 1);
    const int key_tiles = problem.key_tiles((work.query_tile + 1) * kRows - 1, Config::kKeys);
    stream<Config, true>(shared.pipeline, state, k_map, v_map, key_tiles, problem.kv_head(work.head));
    if (Config::kSchedule == Schedule::dynamic_persistent && index == int(gridDim.x) + order.tiles - 1)
      atomicExch(counter, 0);  // this was the launch's last question
  }
}

//| ## Queries
//|
//| Each consumer's queries have one place, and it is free as soon as the last *scores* with the old ones are computed;
//| their product with V, the division and the store still run then.
/// The thread that brings queries.
template <typename Config, typename Shared>
__device__ void produce_queries(Shared& shared, const CUtensorMap& q_map) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {  // of the tiles of queries that this block has had
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    for (int i = 0; i < Config::kConsumers; ++i) {
      mbarrier_wait(&shared.q_empty[i], parity ^ 1);  // the consumer's last scores are computed
      mbarrier_arrive_expect_tx(&shared.q_full[i], sizeof(shared.q[i]));
      load(shared.q[i], q_map, &shared.q_full[i],
           (work.query_tile * Config::kConsumers + i) * kRowsOfWarpgroup, work.head);
    }
  }
}

//| ## Outputs
//|
//| `tma_store_wait_read` returns when TMA has read the tile from shared memory, which is enough for the place to be used
//| again. Only the end of the kernel says that the bytes have arrived in device memory.
/// The thread that has outputs stored.
template <typename Config, typename Shared>
__device__ void store_outputs(Shared& shared, const CUtensorMap& output_map) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    for (int i = 0; i < Config::kConsumers; ++i) {
      mbarrier_wait(&shared.output_full[i], parity);  // all four warps have written their rows
      tma_store(output_map, &shared.output[i],
                {0, (work.query_tile * Config::kConsumers + i) * kRowsOfWarpgroup, 0, work.head.head,
                 work.head.batch});
      tma_store_commit();
      tma_store_wait_read<0>();
      mbarrier_arrive(&shared.output_empty[i]);  // the consumer may write its next output
    }
  }
}

}  // namespace flashbook::flash3
