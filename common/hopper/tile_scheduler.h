//| # The tile scheduler
//|
//| Up to step 4 of FlashAttention-3, a block processes one tile of queries and ends; the next block on that
//| multiprocessor starts from scratch. In step 5, one block per multiprocessor starts, and each processes
//| tile after tile. While its consumers finish one tile, its producers already load the next.
//|
//| **Order.** Under a causal mask, tiles differ in length by a factor of N / 128. If a long tile begins last,
//| all other blocks wait for it. So the longest go first, and a block that has finished takes the next tile:
//| a counter in device memory distributes them (`Schedule::dynamic_persistent`). Without a mask all tiles are
//| equal, and block b takes tiles b, b + blocks, ... (`Schedule::static_persistent`).
//|
//| **L2.** Longest first for *all* heads at once would read every head's keys before reading any of them
//| twice, from device memory each time. So heads are processed in sections, and the longest go first within a
//| section. The host decides how many heads a section has: in a forward pass as many as have 32 MB of keys
//| and values, or 8 or 16 MB where that was measured to be faster.
//|
//| ![Tiles of queries by head, numbered in the order in which blocks take them: sections of heads, the
//| longest first](../../docs/figures/tile_order.svg)
#pragma once
#include "common/hopper/pipeline.h"

namespace flashbook::hopper {

/// How a block gets its tiles.
enum class Schedule {
  single_tile,         ///< one tile per block
  static_persistent,   ///< every gridDim.x-th tile
  dynamic_persistent,  ///< tiles from a counter
  in_order_persistent  ///< all tiles from a counter, even the first, so that they begin in order
};

//| ## The order
//|
//| The host describes the order by five numbers (`launch.h`), and the kernel computes a tile's position from
//| its index, so there is no list in memory. `heads_of_section` is the number of heads that the caller wants
//| in the L2 at once.
/// The order of a launch's tiles, determined by the host.
struct TileOrder {
  int tiles;                      ///< in all heads
  device::Divisor tiles_of_head;  ///< query tiles of a head
  int batch;
  device::Divisor heads;    ///< heads of Q
  int heads_of_section;     ///< heads processed at once
  bool longest_first;       ///< within a section: the last queries of all its heads, then the previous ones
  bool asks_early = false;  ///< request the next tile before this tile's keys, not after
};

/// A block's work: a tile of queries.
struct WorkTile {
  Head head;
  int query_tile;  ///< negative if there is no tile left and the block is done
};

/// Returns tile number `index`.
__device__ inline WorkTile tile_at(const TileOrder& order, int index) {
  if (index >= order.tiles) return {{0, 0}, -1};
  //| The plain order goes head by head. Longest first goes section by section, and in a section tile by tile:
  //| first the last tile of all its heads, then the previous tile of all heads.
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

//| ## Broadcasting the next tile
//|
//| One thread, the producer of keys, determines the next tile. It broadcasts the tile to the other threads
//| through shared memory, in two stages, so that the next tile is known before the current one is finished.
//| Each stage has two mbarriers, as in the pipeline:
//|
//| | barrier | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `work_full` | the producer of keys, when it has written the tile | 1 | consumers, the other threads of the producer | parity 0 |
//| | `work_empty` | one thread of each warp that has read it | 4 per consumer warpgroup, and 1 for each of these threads | the producer of keys | parity 1 |

constexpr int kBroadcastStages = 2;

/// The part of the broadcast that is in shared memory.
struct TileBroadcast {
  WorkTile work[kBroadcastStages];
  uint64_t full[kBroadcastStages], empty[kBroadcastStages];
};

//| `work_empty` expects one arrival from each warp that reads the tile: all consumer warps, and any producer
//| warps that need it too.
/// Initialises the barriers, in one thread. `readers` is the number of warps that read a tile.
__device__ inline void initialise(TileBroadcast& broadcast, int readers) {
  for (int stage = 0; stage < kBroadcastStages; ++stage) {
    mbarrier_init(&broadcast.full[stage], 1);
    name_mbarrier(&broadcast.full[stage], "work_full", stage);
    mbarrier_init(&broadcast.empty[stage], readers);
    name_mbarrier(&broadcast.empty[stage], "work_empty", stage);
  }
}

//| The thread that decides is short of registers, and a `PipelineState` needs one more than a count. So it
//| counts tiles: with two stages the last bit of the count is the stage, the bit before it the phase. The
//| schedule determines the next tile: none, the one gridDim.x further on, or the counter's value.
//|
//| **When to read the counter.** A block that has read the counter holds a tile that no other block can take.
//| If it reads the counter when the previous tile begins, the answer arrives in time, but the launch's last
//| tiles wait for the blocks that hold them. If it reads the counter after requesting the last keys of the
//| previous tile, the answer takes hundreds of clocks, during which the consumers work on the full stages. So
//| blocks read it late, except in short rows (`asks_early`), where that was measured to be slower.
//|
//| **A counter can reset itself.** A block reads it once for each tile that it processes, so all blocks
//| together read it `tiles` times. The block that receives `tiles - 1` is the last one, and sets the counter
//| to 0 for the next launch. Otherwise each launch needs another launch before it that clears the counter,
//| and short sequences are slower.
/// Decides which tile of queries the block works on next, broadcasts it, and calls `work_on(tile)` for each;
/// at the end it broadcasts that none is left. One thread calls it. `counter` must be 0 at launch; schedules
/// without a counter ignore it. kResetsCounter: with Schedule::dynamic_persistent, the launch resets it to 0.
template <Schedule kSchedule, bool kResetsCounter = false, typename WorkOn>
__device__ __forceinline__ void hand_out_tiles(TileBroadcast& broadcast, const TileOrder& order, int* counter,
                                               const WorkOn& work_on) {
  int index = kSchedule == Schedule::in_order_persistent ? atomicAdd(counter, 1) : int(blockIdx.x);
  for (uint32_t round = 0;; ++round) {
    const WorkTile work = tile_at(order, index);
    const uint32_t stage = round % kBroadcastStages, phase = round / kBroadcastStages % 2;
    mbarrier_wait(&broadcast.empty[stage], phase ^ 1);  // all readers have read the last tile
    broadcast.work[stage] = work;
    mbarrier_arrive(&broadcast.full[stage]);
    if (work.query_tile < 0) return;
    if constexpr (kSchedule == Schedule::single_tile) index = order.tiles;
    if constexpr (kSchedule == Schedule::static_persistent) index += gridDim.x;
    //| The counter is read here, or after `work_on` has requested all keys of the tile.
    if (kSchedule == Schedule::dynamic_persistent && order.asks_early)
      index = gridDim.x + atomicAdd(counter, 1);
    work_on(work);
    if (kSchedule == Schedule::dynamic_persistent && !order.asks_early)
      index = gridDim.x + atomicAdd(counter, 1);
    if constexpr (kSchedule == Schedule::in_order_persistent) index = atomicAdd(counter, 1);
    if (kResetsCounter && kSchedule == Schedule::dynamic_persistent &&
        index == int(gridDim.x) + order.tiles - 1)
      atomicExch(counter, 0);  // this was the launch's last request
  }
}

//| A reader copies the tile into registers and releases the stage at once. A warp needs a `__syncwarp` in
//| between: lane 0 arrives for all lanes, and another lane may not have read yet. A negative tile means that
//| the block is done.
/// Returns the block's next tile. If `kWarp`, a whole warp calls it; otherwise a single thread.
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
