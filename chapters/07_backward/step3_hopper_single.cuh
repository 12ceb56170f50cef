//| # Step 3: TMA and WGMMA
#pragma once
#include "chapters/07_backward/step4_hopper_blocks.cuh"

namespace flashbook::backward {

//| In step 2 threads copy tiles, and `ldmatrix` loads each operand into registers. Here TMA loads tiles and
//| `wgmma` reads them in place. A block has two warpgroups and one tile of keys. The round is that of
//| `hopper_gradients.cuh`, shared by all Hopper steps; dQ is added from registers, four floats per
//| instruction.
//|
//| ![The five products](../../docs/figures/backward_products.svg)
/// Computes the gradients of one tile of keys with two warpgroups, one thread of which also requests tiles.
/// Grid: tiles of keys of all key heads.
template <typename T, typename Traits>
__global__ void __launch_bounds__(kKeyConsumerThreads, 1)
    hopper_single(const __grid_constant__ TileMap q_map,        // [batch, heads, panels, seqlen_q, 64]
                  const __grid_constant__ TileMap k_map,        // [batch, kv heads, panels, seqlen_k, 64]
                  const __grid_constant__ TileMap v_map,        // [batch, kv heads, panels, seqlen_k, 64]
                  const __grid_constant__ TileMap do_map,       // [batch, heads, panels, seqlen_q, 64]
                  const __grid_constant__ CUtensorMap lse_map,  // [heads * padded_q], in the workspace
                  const __grid_constant__ CUtensorMap d_map,    // [heads * padded_q], in the workspace
                  T* dk,  // [batch, kv heads, seqlen_k, head_dim], strided
                  T* dv,  // [batch, kv heads, seqlen_k, head_dim], strided
                  Workspace workspace, Problem problem) {
  using Shared = HopperShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  //| One block per tile of keys of each key head. Its loop goes over the queries that see it, and the heads
  //| of the group.
  const int key_tiles = ceil_div(problem.seqlen_k, kTileKeys);
  const int kv_head = int(blockIdx.x) / key_tiles, first_key = int(blockIdx.x) % key_tiles * kTileKeys;
  const Head key_head{kv_head % problem.kv_heads, kv_head / problem.kv_heads};
  const QueryTiles tiles_seen = queries_of<Traits::kQueries>(problem, first_key);
  if (threadIdx.x == 0) {
    initialise(shared.q, 1, kKeyConsumers * kWarpsPerWarpgroup, "q full", "q empty");
    initialise(shared.d_o, 1, kKeyConsumers * kWarpsPerWarpgroup, "do full", "do empty");
    mbarrier_init(&shared.keys_full, 1);
    name_mbarrier(&shared.keys_full, "keys full");
    fence_mbarrier_init();
  }
  wait_for_launch_before();  // D and the log-sum-exp are computed
  __syncthreads();           // the barriers are ready

  //| There is no producer yet: one thread of the first warpgroup requests tiles, between products. It fills
  //| the stage that the next round reads, and first waits for it to be empty, which is when both warpgroups
  //| have finished the previous round.
  const int first_query = tiles_seen.first * Traits::kQueries,
            last_query = (tiles_seen.end - 1) * Traits::kQueries;
  const auto fill = [&](PipelineState<Traits::kStages> to, int member, int query) {
    const Head head{key_head.head * problem.group + member, key_head.batch};
    const int row = problem.workspace_row(head.batch, head.head) + query;
    PipelineState<Traits::kStages> q = to, d_o = to;
    wait_empty(shared.q, q);
    fill_queries(shared.q, q, shared.lse, q_map, lse_map, query, head, row);
    wait_empty(shared.d_o, d_o);
    fill_queries(shared.d_o, d_o, shared.d, do_map, d_map, query, head, row);
  };
  PipelineState<Traits::kStages> state;
  if (threadIdx.x == 0 && tiles_seen.first < tiles_seen.end) {
    mbarrier_arrive_expect_tx(&shared.keys_full, (Shared::kHasDp ? 2 : 1) * Shared::Keys::kBytes);
    load(shared.k, k_map, &shared.keys_full, first_key, key_head);
    if constexpr (Shared::kHasDp) load(shared.v, v_map, &shared.keys_full, first_key, key_head);
    fill(state, 0, first_query);
  }

  //| The waits are those of later steps; only the requests differ. That one thread's detour costs its whole
  //| warpgroup: the other lanes, and so the products, wait for it.
  const int warp = warp_of_block(), number = warp / kWarpsPerWarpgroup;
  Gradients<T, Traits> gradients(shared, problem, number, warp);
  // Always true: the last query sees every key. But without the test, nvcc 13.0 spills a register at d = 64.
  if (tiles_seen.first < tiles_seen.end) mbarrier_wait(&shared.keys_full, 0);
#pragma unroll 1
  for (int member = 0; member < problem.group; ++member)
#pragma unroll 1
    for (int query = first_query; query <= last_query; query += Traits::kQueries) {
      //| With two stages the next tile is in flight while this one is used. At d = 256 there is space for
      //| only one stage, and every load is waited for.
      if (threadIdx.x == 0) {
        if constexpr (Traits::kStages == 2) {
          PipelineState<2> other = state;
          other.advance();
          if (query < last_query)
            fill(other, member, query + Traits::kQueries);
          else if (member + 1 < problem.group)
            fill(other, member + 1, first_query);
        } else if (query > first_query || member > 0) {
          fill(state, member, query);
        }
      }
      __syncwarp();
      // Always the same value, but recomputed, or the compiler keeps descriptors of all steps in registers.
      gradients.number = __shfl_sync(kWholeWarp, threadIdx.x / kWarpgroup, 0);
      float* sums = nullptr;
      if constexpr (Shared::kHasDp)
        sums = Gradients<T, Traits>::Part::sums_of(
            workspace.dq,
            problem.workspace_row(key_head.batch, key_head.head * problem.group + member) + query, number);
      gradients.step(state, first_key, query, sums);
    }
  store_gradients(gradients, problem, dk, dv, kv_head, first_key);
}

}  // namespace flashbook::backward
