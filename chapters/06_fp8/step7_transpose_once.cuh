//| # V, transposed once
//|
//| Up to step 6 every block transposes each tile of V that its queries see. With 16k keys that is as many
//| times as a head has tiles of queries, 86 or 128. Once is enough. A separate kernel before the attention
//| would be one more pass over memory without any products, which is a large part of a short sequence's time.
//| Here the transposers of all blocks share the work while the attention runs: an idle one takes the next
//| tile, transposes it as before, and has TMA write it to the workspace. Loaders read it from there like
//| keys. When all tiles are done, the transposers exit and leave their schedulers to the consumers.
//|
//| ![Transposers of all blocks take tiles of V and write them to the workspace; a loader waits until its head
//| is whole](../../docs/figures/fp8_once.svg)
//|
//| | role | waits for | signals |
//| | --- | --- | --- |
//| | transposers | TMA, which loads the next tile of V | `done` of its head, by an addition with release, once the tile is in global memory |
//| | loader | `done` of its head, by a load with acquire | the consumers, by the pipeline of transposed tiles |
//|
//| **No deadlock.** A loader waits for tiles, a transposer only for memory. If a loader's tile has been
//| taken, a running block took it and will finish it; otherwise the loader's own block will take it sooner or
//| later. So it does not matter how many blocks run at once.
//|
//| **Order.** Tiles are taken head by head, as loaders need them. The first tiles of queries belong to the
//| first few heads, so at the start all blocks need V of these heads, and all of them transpose it. From then
//| on the transposers stay ahead.
//|
//| **Predicted.** A tile takes a block about 2 microseconds: the load, 150 instructions per warp at d = 128,
//| and the store, one after another. With 16k tokens and heads x head_dim = 2048 a block gets 8 tiles of 128
//| keys at d = 256, 21 of 96 at d = 128. It is done after 20 to 45 microseconds, and the consumers wait for
//| the first two tiles, 4 microseconds, instead of 16 for a pass at the speed of memory. Without transposers
//| the loop was 20 % faster at d = 256 and 7 % at d = 128 (see the appendix on what was tried).
#pragma once
#include "chapters/06_fp8/transpose.cuh"
#include "chapters/06_fp8/version.cuh"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/bulk_copy.h"

namespace flashbook::fp8 {

//| ## A transposer
//|
//| Both warps work on one tile, each on every second group of 16 columns. One of their lanes, the leader,
//| takes a tile, loads it, and stores it. There is one buffer for the incoming tile and one for the
//| transposed tile, so the next tile can arrive while this one is stored.
constexpr int kTransposersDone = 4;  ///< the named barrier of the two warps, after those of turns

/// Runs a block's transposer warps until no tile of V is left. `warp` is the warp's index among them.
template <typename Traits>
__device__ void transpose_for_all(Shared<Traits>& shared, const CUtensorMap& v_map, const Problem& problem,
                                  const TransposedValues& values, int warp) {
  const bool leader = warp == 0 && threadIdx.x % 32 == 0;
  PipelineState<1> state;
  //| The leader writes the number of the piece for both warps before it arrives at the barrier. If nothing is
  //| left, no bytes are announced, and the arrival alone completes the phase.
  const auto take_next = [&] {
    const int piece = atomicAdd(values.taken, 1);
    shared.raw_piece = piece;
    if (piece < values.pieces) {
      const int head = piece / values.pieces_of_head;
      mbarrier_arrive_expect_tx(&shared.raw.full[0], sizeof(shared.raw.tile[0]));
      load(shared.raw.tile[0], v_map, &shared.raw.full[0], piece % values.pieces_of_head * Traits::kPieceKeys,
           problem.kv_head(problem.head_of(head * problem.group)));
    } else {
      mbarrier_arrive(&shared.raw.full[0]);
    }
  };
  if (leader) take_next();
  for (;;) {
    wait_full(shared.raw, state);
    state.advance();
    const int piece = shared.raw_piece;
    if (piece >= values.pieces) return;
    transpose_matrices<Traits::kTransposerBatch>(shared.outgoing, shared.raw.tile[0], warp);
    fence_proxy_async();  // this lane's writes become visible to TMA
    named_barrier_sync<kTransposersDone,
                       kTransposers * 32>();  // both have read the one and written the other
    //| A store is complete when its bytes are in global memory, not when they have been read from shared
    //| memory; only then may the tile be counted. The addition releases what the leader has waited for.
    if (leader) {
      bulk_store(values.piece(piece, sizeof(shared.outgoing)), &shared.outgoing, sizeof(shared.outgoing));
      tma_store_commit();
      take_next();
      tma_store_wait<0>();
      red_add_release(values.done + piece / values.pieces_of_head, 1);
    }
    named_barrier_sync<kTransposersDone, kTransposers * 32>();  // the outgoing piece has been read
  }
}

//| ## The loader
//|
//| It is the loader of `producer.cuh`, but values come as plain bytes: a tile has the same swizzled layout in
//| the workspace as in shared memory, so no tensor map is needed. The counter of a head is read after the
//| first keys are requested, so that the first scores do not wait for the L2. (A loader that stops checking
//| when all of V is done must check for that, too, which made 512 keys 5 % slower.)

/// Waits until all pieces of a head have been transposed. TMA has written them for other blocks and will read
/// them for this thread, hence the fence.
__device__ __forceinline__ void wait_transposed(const TransposedValues& values, int kv_head) {
  while (load_acquire(values.done + kv_head) < values.pieces_of_head) {
  }
  fence_proxy_async_global();
}

//| Loads have the order of `load_tiles`; only a tile of values is loaded differently.
/// Runs the loader of blocks that share the transposition.
template <typename Traits>
__device__ void load_transposed_tiles(Shared<Traits>& shared, const CUtensorMap& k_map,
                                      const TransposedValues& values, const Problem& problem,
                                      const TileOrder& order, int* counter) {
  PipelineState<Traits::kKeyStages> key;
  PipelineState<Traits::kTransposedStages> value;
  hand_out_tiles<Traits::kSchedule>(shared.broadcast, order, counter, [&](WorkTile work) {
    const Head kv_head = problem.kv_head(work.head);
    const int number = problem.scale_head(work.head), tiles = key_tiles_of<Traits>(problem, work);
    fill(shared.keys, key, k_map, (tiles - 1) * Traits::kKeys, kv_head);
    //| The first tile's keys are in flight while the loader waits for this head's values.
    wait_transposed(values, number);
#pragma unroll 1  // the producer has few registers
    for (int tile = tiles - 1; tile >= 0; --tile) {
      if (tile > 0) fill(shared.keys, key, k_map, (tile - 1) * Traits::kKeys, kv_head);
      //| The pieces of a tile are contiguous, and one copy loads them all.
      auto& place = shared.transposed.tile[value.stage];
      wait_empty(shared.transposed, value);
      mbarrier_arrive_expect_tx(&shared.transposed.full[value.stage], sizeof(place));
      bulk_load(&place,
                values.piece(number * values.pieces_of_head + tile * place.kPieces, sizeof(place.piece[0])),
                sizeof(place), &shared.transposed.full[value.stage]);
      value.advance();
    }
  });
}

}  // namespace flashbook::fp8
