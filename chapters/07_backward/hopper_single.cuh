//| # Step 3: TMA and WGMMA
#pragma once
#include "chapters/07_backward/hopper_blocks.cuh"

namespace flashbook::backward {

/// Gradients of one tile of keys by two warpgroups, one thread of which also has TMA bring the tiles. Grid:
/// tiles of keys of all key heads.
template <typename T, typename Config>
__global__ void __launch_bounds__(kConsumerThreads, 1) hopper_single(
    const __grid_constant__ CUtensorMap q_map,   // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ CUtensorMap k_map,   // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ CUtensorMap v_map,   // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ CUtensorMap do_map,  // [batch, heads, panels, seqlen_q, 64]
    T* dk,                                       // [batch, kv heads, seqlen_k, head_dim], strided
    T* dv,                                       // [batch, kv heads, seqlen_k, head_dim], strided
    Workspace workspace, Problem problem) {
  using Shared = HopperShared<T, Config>;
  static_assert(sizeof(Shared) <= hopper::kMostSharedBytes,
                "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  const int key_tiles = (problem.seqlen_k + kKeys - 1) / kKeys;
  const int kv_head = int(blockIdx.x) / key_tiles, first_key = int(blockIdx.x) % key_tiles * kKeys;
  const Head of_keys{kv_head % problem.kv_heads, kv_head / problem.kv_heads};
  const Visit visit = queries_of<Config::kQueries>(problem, first_key);
  const int tiles = visit.end - visit.first, rounds = problem.group * tiles;
  if (threadIdx.x == 0) {
    hopper::initialise(shared.q, 1, kConsumers * kWarpsOfWarpgroup, "q full", "q empty");
    hopper::initialise(shared.d_o, 1, kConsumers * kWarpsOfWarpgroup, "do full", "do empty");
    mbarrier_init(&shared.keys_full, 1);
    name_mbarrier(&shared.keys_full, "keys full");
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  const auto row_of = [&](int round) {  // of the workspace
    return int64_t(kv_head * problem.group + round / tiles) * problem.padded_q +
           (visit.first + round % tiles) * Config::kQueries;
  };
  PipelineState<Config::kQStages> q_filled, q_state;
  PipelineState<Config::kDoStages> do_filled, do_state;
  const auto fill = [&](int round) {
    const Head head{of_keys.head * problem.group + round / tiles, of_keys.batch};
    const int query = (visit.first + round % tiles) * Config::kQueries;
    fill_queries(shared.q, q_filled, shared.lse, q_map, workspace.lse + row_of(round), query, head);
    fill_queries(shared.d_o, do_filled, shared.d, do_map, workspace.d + row_of(round), query, head);
  };
  if (threadIdx.x == 0 && rounds > 0) {
    mbarrier_arrive_expect_tx(&shared.keys_full, (Shared::kHasDp ? 2 : 1) * Shared::Keys::kBytes);
    load(shared.k, k_map, &shared.keys_full, first_key, of_keys);
    if constexpr (Shared::kHasDp) load(shared.v, v_map, &shared.keys_full, first_key, of_keys);
    fill(0);
  }

  const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32, 0), number = warp / kWarpsOfWarpgroup;
  Gradients<T, Config> gradients(shared, problem, number, warp);
  if (rounds > 0) mbarrier_wait(&shared.keys_full, 0);
  uint32_t round = 0;
#pragma unroll 1
  while (int(round) < rounds) {
    // With two stages the next tile travels while this one is used; with one, nothing does.
    constexpr int kAhead = Config::kQStages - 1;
    if (threadIdx.x == 0 && (kAhead == 1 || round > 0) && int(round) + kAhead < rounds) fill(round + kAhead);
    __syncwarp();
    float* sums = nullptr;
    if constexpr (Shared::kHasDp) sums = gradients.part_of(workspace.dq, row_of(round), number);
    gradients.step(q_state, do_state, round, first_key, (visit.first + int(round) % tiles) * Config::kQueries,
                   sums);
  }
  store_gradients(gradients, problem, dk, dv, kv_head, first_key);
}

}  // namespace flashbook::backward
