//| # The producer
//|
//| Its four warps have three different tasks (`version.cuh`), and none is delayed by another's waits.
//|
//| ![TMA loads keys and raw values, two warps transpose the values, consumers read keys and transposed
//| values](../../docs/figures/fp8_block.svg)
#pragma once
#include "chapters/06_fp8/transpose.cuh"
#include "chapters/06_fp8/version.cuh"
#include "common/ptx/bulk_copy.h"

namespace flashbook::fp8 {

/// Returns the number of tiles of keys for a tile of queries.
template <typename Traits>
__device__ __forceinline__ int key_tiles_of(const Problem& problem, WorkTile work) {
  constexpr int kRows = Traits::kConsumers * kRowsPerWarpgroup;
  return problem.key_tiles((work.query_tile + 1) * kRows - 1, Traits::kKeys);
}

//| ## The loader
//|
//| One thread decides which tile of queries is next, broadcasts it, and keeps two pipelines filled. It is
//| chapter 5's `produce_keys`, except that keys and values have separate pipelines. In a single pipeline a
//| tile of values would occupy its stage until the transposers are done with it, and the keys behind it would
//| have to wait. Loads are issued in the order in which consumers need the tiles: the next K before this V.
/// Runs the loader. A tile's keys precede the previous tile's values, the order in which consumers use them.
template <typename Traits>
__device__ void load_tiles(Shared<Traits>& shared, const CUtensorMap& k_map, const CUtensorMap& v_map,
                           const Problem& problem, const TileOrder& order, int* counter) {
  PipelineState<Traits::kKeyStages> key;
  PipelineState<Traits::kRawStages> value;
  hand_out_tiles<Traits::kSchedule>(shared.broadcast, order, counter, [&](WorkTile work) {
    //| The first K is loaded alone, like the consumers' first scores. Then K and V come in pairs. `fill`
    //| waits for the stage to be empty, announces the bytes, and issues the TMA load.
    const Head kv_head = problem.kv_head(work.head);
    const int tiles = key_tiles_of<Traits>(problem, work);
    fill(shared.keys, key, k_map, (tiles - 1) * Traits::kKeys, kv_head);
#pragma unroll 1  // the producer has few registers
    for (int tile = tiles - 1; tile >= 0; --tile) {
      if (tile > 0) fill(shared.keys, key, k_map, (tile - 1) * Traits::kKeys, kv_head);
      fill(shared.raw, value, v_map, tile * Traits::kKeys, kv_head);
    }
  });
}

//| ## Queries and outputs
//|
//| One thread does both, since the other two warps are busy transposing. So it must not wait for a late event
//| while other work is ready. It loads the next queries first, since their place is free early, once the
//| consumer has read them. Then it stores the output of the *previous* tile, which is finished later. That is
//| why it remembers that tile, and runs one round more than there are tiles.
/// Loads the queries of a tile and their means, and then stores the output of the previous tile. One thread.
template <typename Traits>
__device__ void serve_consumers(Shared<Traits>& shared, const CUtensorMap& q_map,
                                const CUtensorMap& output_map, const Problem& problem) {
  constexpr int kRows = Traits::kConsumers * kRowsPerWarpgroup;
  PipelineState<kBroadcastStages> next;
  WorkTile before{{0, 0}, -1};
  const uint32_t means_bytes = ((problem.k_mean != nullptr) + (problem.v_mean != nullptr)) *
                               uint32_t(Traits::kHeadDim * sizeof(float));
  for (uint32_t parity = 0;; parity ^= 1) {  // parity of the block's number of tiles so far
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile >= 0)
      load_queries(shared, q_map, parity, work.query_tile * kRows, work.head, means_bytes,
                   [&shared, &problem, work, parity](int i) {
                     const int64_t first_mean = int64_t(problem.scale_head(work.head)) * Traits::kHeadDim;
                     Means<Traits::kHeadDim>& means = shared.means[i][parity];
                     uint64_t* const full = &shared.barriers.q_full[i];
                     if (problem.k_mean != nullptr)
                       bulk_load(means.k, problem.k_mean + first_mean, sizeof(means.k), full);
                     if (problem.v_mean != nullptr)
                       bulk_load(means.v, problem.v_mean + first_mean, sizeof(means.v), full);
                   });
    //| Parities follow from the round: round i loads queries i, and stores output i - 1.
    if constexpr (Traits::kStoreByTma)
      if (before.query_tile >= 0)
        store_outputs(shared, output_map, parity ^ 1, before.query_tile * kRows, before.head);
    if (work.query_tile < 0) return;
    before = work;
  }
}

//| ## A transposer
//|
//| A transposer connects two pipelines, as the consumer of `raw` and the producer of `transposed`. So it
//| waits twice per tile, for data and for a free stage, and arrives twice. All its lanes work, so lane 0 may
//| arrive for the warp only after a `__syncwarp`.
/// Runs a transposer; `warp` is its index.
template <typename Traits>
__device__ void transpose_values(Shared<Traits>& shared, const Problem& problem, int warp) {
  PipelineState<Traits::kRawStages> from;
  PipelineState<Traits::kTransposedStages> to;
  PipelineState<kBroadcastStages> next;
  for (;;) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) return;
#pragma unroll 1
    for (int tiles = key_tiles_of<Traits>(problem, work); tiles > 0; --tiles) {
      wait_full(shared.raw, from);
      wait_empty(shared.transposed, to);  // consumers have read the stage's last tile
      //| WGMMA reads through the async proxy, which does not see ordinary writes by itself: hence the fence,
      //| by each lane for its own writes, before the arrival at `full`.
      if constexpr (Traits::kMatrices)
        transpose_matrices<Traits::kTransposerBatch>(shared.transposed.tile[to.stage].piece[0],
                                                     shared.raw.tile[from.stage], warp);
      else
        transpose_bytes(shared.transposed.tile[to.stage].piece[0], shared.raw.tile[from.stage], warp);
      fence_proxy_async();  // this lane's writes become visible to wgmma
      __syncwarp();         // all lanes have read and written
      release(shared.raw, from);
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.transposed.full[to.stage]);
      from.advance();
      to.advance();
    }
  }
}

}  // namespace flashbook::fp8
