/// \file
/// Which block works on which tile of queries, and how a block's warps learn of it.
/// chapters/05_flash_attention_3/tile_scheduler.cuh explains it; hopper/launch.h makes the order.
#pragma once
#include "common/hopper/pipeline.h"

namespace flashbook::hopper {

/// How a block comes by its tiles.
enum class Schedule {
  single_tile,         ///< one for each block
  static_persistent,   ///< every gridDim.x-th
  dynamic_persistent,  ///< what a counter gives, asked for while the tile before begins
  in_order_persistent  ///< what a counter gives, asked for when it is needed: tiles begin in their order
};

/// The tiles of a launch, in order. Made by the host.
struct TileOrder {
  int tiles;                      ///< of all heads
  device::Divisor tiles_of_head;  ///< query tiles of a head
  int batch;
  device::Divisor heads;  ///< of Q
  int heads_of_section;   ///< that are worked on at once
  bool longest_first;     ///< within a section: the last queries of all its heads, then those before
};

/// What a block works on: a tile of queries.
struct WorkTile {
  Head head;
  int query_tile;  ///< negative: there is none, the block is done
};

/// Tile number `index`.
__device__ inline WorkTile tile_at(const TileOrder& order, int index) {
  if (index >= order.tiles) return {{0, 0}, -1};
  int head, query_tile;  // `head` counts over batch and heads together
  if (!order.longest_first) {
    head = index / order.tiles_of_head;
    query_tile = index % order.tiles_of_head;
  } else {
    const int tiles_of_section = order.tiles_of_head * order.heads_of_section;
    const int section = index / tiles_of_section, place = index % tiles_of_section;
    const int first_head = section * order.heads_of_section;
    const int heads =
        min(order.heads_of_section, order.batch * order.heads - first_head);  // the last may be smaller
    head = first_head + place % heads;
    query_tile = order.tiles_of_head - 1 - place / heads;
  }
  return {{head % order.heads, head / order.heads}, query_tile};
}

constexpr int kBroadcastStages = 2;

/// In shared memory.
struct TileBroadcast {
  WorkTile work[kBroadcastStages];
  uint64_t full[kBroadcastStages], empty[kBroadcastStages];
};

/// One thread makes the barriers. `readers` are warps.
__device__ inline void initialise(TileBroadcast& broadcast, int readers) {
  for (int stage = 0; stage < kBroadcastStages; ++stage) {
    mbarrier_init(&broadcast.full[stage], 1);
    name_mbarrier(&broadcast.full[stage], "work_full", stage);
    mbarrier_init(&broadcast.empty[stage], readers);
    name_mbarrier(&broadcast.empty[stage], "work_empty", stage);
  }
}

/// Decides which tile of queries the block works on next, tells all readers, and calls `work_on(tile)` for
/// each; at the end it tells them that there is none. One thread. `counter` is 0 at the launch, and not read
/// unless kSchedule has one.
template <Schedule kSchedule, typename WorkOn>
__device__ __forceinline__ void hand_out_tiles(TileBroadcast& broadcast, const TileOrder& order, int* counter,
                                               const WorkOn& work_on) {
  int index = kSchedule == Schedule::in_order_persistent ? atomicAdd(counter, 1) : int(blockIdx.x);
  for (uint32_t round = 0;; ++round) {  // a register less than a PipelineState
    const WorkTile work = tile_at(order, index);
    const uint32_t stage = round % kBroadcastStages, phase = round / kBroadcastStages % 2;
    mbarrier_wait(&broadcast.empty[stage], phase ^ 1);  // all have read what stood here before
    broadcast.work[stage] = work;
    mbarrier_arrive(&broadcast.full[stage]);
    if (work.query_tile < 0) return;
    if constexpr (kSchedule == Schedule::single_tile) index = order.tiles;
    if constexpr (kSchedule == Schedule::static_persistent) index += gridDim.x;
    // Asked for now, needed when this tile's keys are under way: nobody waits for the answer.
    if constexpr (kSchedule == Schedule::dynamic_persistent) index = gridDim.x + atomicAdd(counter, 1);
    work_on(work);
    if constexpr (kSchedule == Schedule::in_order_persistent) index = atomicAdd(counter, 1);
  }
}

/// The block's next tile. `kWarp`: a whole warp asks; else one thread alone.
template <bool kWarp>
__device__ __forceinline__ WorkTile next_tile(TileBroadcast& broadcast,
                                              PipelineState<kBroadcastStages>& state) {
  mbarrier_wait(&broadcast.full[state.stage], state.phase);
  const WorkTile work = broadcast.work[state.stage];
  if constexpr (kWarp) __syncwarp();  // all lanes have read it
  if (!kWarp || threadIdx.x % 32 == 0) mbarrier_arrive(&broadcast.empty[state.stage]);
  state.advance();
  return work;
}

}  // namespace flashbook::hopper
