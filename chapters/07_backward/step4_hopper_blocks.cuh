//| # Steps 4 to 6: roles, order, turns
//|
//| In step 3 two things keep the consumers from multiplying: one of their threads requests tiles, and all of
//| them issue their additions to dQ. Step 4 moves both to threads of a third warpgroup. Steps 5 and 6 are the
//| same kernel with other switches: persistent blocks, the queries at which a block begins, and the order in
//| which blocks add.
//|
//| | thread | does | waits for |
//| | --- | --- | --- |
//| | 0 | takes the next tile of keys, loads Q and log-sum-exp | an empty stage |
//| | 32 | loads K, V, dO and D | empty stages, and the last products with K and V |
//| | 64, 96 | add a consumer's dQ, or signal when it may | the consumer; in step 6, earlier blocks |
//| | 128 to 383 | two consumers: five products | full stages; each other's dS |
#pragma once
#include "chapters/07_backward/hopper_gradients.cuh"
#include "chapters/07_backward/prepare.cuh"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::backward {

//| ## Which keys and which queries
//|
//| Chapter 5's scheduler hands out the tiles of a head from the last to the first, since under a causal mask
//| the last queries have the most keys. Keys are the other way round: all queries see the first key. So the
//| number is reversed, except in step 6, where the block with the last keys has to come first.
/// Returns the first key of a tile of the order, whose longest tiles are the last of a head; whereas the
/// first keys are seen by the most queries.
template <typename Traits>
__device__ __forceinline__ int first_key_of(const TileOrder& order, const WorkTile& work) {
  constexpr bool reversed = !Traits::kDeterministic;
  return (reversed ? order.tiles_of_head - 1 - work.query_tile : work.query_tile) * kTileKeys;
}

//| All roles of a block must agree on the tiles of queries and their order: two producers, two adding
//| threads, eight warps of consumers. Each computes them from the tile of keys, by the same two functions.
//| With grouped queries the heads of the group follow one another, and dK and dV stay in registers until the
//| last one is done, so the sum over the group needs no memory.
/// Streams all query tiles that see the keys from `first_key` on, head after head of the group.
template <typename Traits, typename Queries, int kStages, int kQueries>
__device__ __forceinline__ void stream_queries(Pipeline<Queries, kStages>& pipeline,
                                               PipelineState<kStages>& state,
                                               float (&row_values)[kStages][kQueries], const TileMap& map,
                                               const CUtensorMap& row_map, const Problem& problem,
                                               const Head& kv_head, int first_key) {
  Head head{kv_head.head * problem.group, kv_head.batch};
  int row = problem.workspace_row(head.batch, head.head);
  const QueryTiles tiles_seen = queries_of<kQueries>(problem, first_key);
  const int start = start_of<Traits>(tiles_seen, first_key);
#pragma unroll 1
  for (int member = problem.group; member > 0; --member, ++head.head, row += problem.padded_q)
#pragma unroll 1
    for (int round = 0; round < tiles_seen.tiles(); ++round) {
      const int query = tiles_seen.tile(round, start) * kQueries;
      wait_empty(pipeline, state);
      fill_queries(pipeline, state, row_values, map, row_map, query, head, row + query);
    }
}

//| ## Two producers
//|
//| One thread loads Q, another K, V and dO. A single thread could do both, but its state would not fit in a
//| producer's few registers. The first one also takes the block's next tile of keys from a counter. It does
//| so only after it has requested the last queries of this tile: a block that takes a tile early holds it and
//| begins it late, and in step 6 other blocks would wait for it.
/// Runs the thread that takes tiles of keys, broadcasts them, and loads Q.
template <typename T, typename Traits>
__device__ __forceinline__ void produce_q(HopperShared<T, Traits>& shared, const TileMap& q_map,
                                          const CUtensorMap& lse_map, const Problem& problem,
                                          const TileOrder& order, int* counter) {
  PipelineState<Traits::kStages> state;
  hand_out_tiles<Traits::kSchedule>(shared.broadcast, order, counter, [&](const WorkTile& work) {
    stream_queries<Traits>(shared.q, state, shared.lse, q_map, lse_map, problem, work.head,
                           first_key_of<Traits>(order, work));
  });
}

//| There is space for one K and one V. The next ones are requested when both consumers' last products are
//| done, and are in flight while the consumers store dK and dV from their registers. A tile of keys that no
//| query sees needs no data at all.
/// Runs the thread that loads K, V and dO.
template <typename T, typename Traits>
__device__ __forceinline__ void produce_keys(HopperShared<T, Traits>& shared, const TileMap& k_map,
                                             const TileMap& v_map, const TileMap& do_map,
                                             const CUtensorMap& d_map, const Problem& problem,
                                             const TileOrder& order) {
  using Shared = HopperShared<T, Traits>;
  PipelineState<kBroadcastStages> next;
  PipelineState<Traits::kStages> state;
  uint32_t parity = 0;
#pragma unroll 1
  for (;;) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int first_key = first_key_of<Traits>(order, work);
    mbarrier_wait(&shared.keys_empty, parity ^ 1);  // the products that read the last tile are done
    parity ^= 1;
    mbarrier_arrive_expect_tx(&shared.keys_full, (Shared::kHasDp ? 2 : 1) * Shared::Keys::kBytes);
    const Head keys{work.head.head / problem.sharing, work.head.batch};
    load(shared.k, k_map, &shared.keys_full, first_key, keys);
    if constexpr (Shared::kHasDp) load(shared.v, v_map, &shared.keys_full, first_key, keys);
    stream_queries<Traits>(shared.d_o, state, shared.d, do_map, d_map, problem, work.head, first_key);
  }
}

//| ## Turns
//|
//| Step 6 fixes the order of additions to a tile of dQ: from the last keys to the first. Under a causal mask
//| blocks arrive in this order anyway. The block with the last keys that a tile of queries sees begins with
//| it, on its diagonal; the block before it begins with earlier queries and arrives later. Blocks are also
//| started in this order, so a block waits only for blocks that are running or done, and there is no
//| deadlock, however few multiprocessors there are.
/// Returns how many blocks add to dQ of a tile of queries before the one with the keys from `first_key` on:
/// those with later keys.
__device__ __forceinline__ int turn_of(const Problem& problem, int first_key, int first_query, int queries) {
  const int last_query = min(first_query + queries, problem.seqlen_q) - 1;
  return (problem.last_key(last_query) - first_key) / kTileKeys;
}

//| ## The threads that add
//|
//| For each consumer a thread passes the part of dQ to TMA. Its two barriers are those of a pipeline with one
//| stage, with the roles exchanged: the consumer fills it, and TMA empties it.
//|
//| ![Four parts of one element of dQ, added in two orders, end in different last
//| digits](../../docs/figures/backward_orders.svg)
/// Whether dedicated threads add dQ, or wait for the consumer's turn to add it.
template <typename Traits>
constexpr bool kHasAdders = Traits::kAddByTma || (Traits::kDeterministic && Traits::kSums != Sums::values);

/// Runs a thread that adds one consumer's part of dQ, tile after tile.
template <typename T, typename Traits>
__device__ __forceinline__ void add_dq(HopperShared<T, Traits>& shared, const Workspace& workspace,
                                       const Problem& problem, const TileOrder& order, int* semaphores,
                                       int number) {
  using Part = DqPart<Traits::kHeadDim, Traits::kQueries>;
  PipelineState<kBroadcastStages> next;
  uint32_t parity = 0;
#pragma unroll 1
  for (;;) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    //| This thread processes the same tiles of queries as all other roles in the block.
    const int first_key = first_key_of<Traits>(order, work);
    const QueryTiles tiles_seen = queries_of<Traits::kQueries>(problem, first_key);
    const int start = start_of<Traits>(tiles_seen, first_key);
#pragma unroll 1
    for (int member = 0; member < problem.group; ++member) {
      const int row = problem.workspace_row(work.head.batch, work.head.head * problem.group + member);
#pragma unroll 1
      for (int round = 0; round < tiles_seen.tiles(); ++round) {
        const int tile = tiles_seen.tile(round, start);
        const int query = tile * Traits::kQueries, first_row = row + query;
        int* const semaphore = semaphores + first_row / kRowsPerWarpgroup * kKeyConsumers + number;
        int turn = 0;
        if constexpr (Traits::kDeterministic) turn = turn_of(problem, first_key, query, Traits::kQueries);
        if constexpr (Traits::kAddByTma) {
          //| There are two different things to wait for. After `tma_store_wait_read` TMA has read the part
          //| from shared memory, and the consumer may write the next one. The sums may still be on their way
          //| to the L2. The next block may add only when they are in memory, after `tma_store_wait`. Only
          //| then comes the release of the semaphore.
          mbarrier_wait(&shared.dq_full[number], parity);  // the part has been written
          if constexpr (Traits::kDeterministic) wait_for_turn(semaphore, turn);
          bulk_reduce_add(Part::sums_of(workspace.dq, first_row, number), &shared.dq[number][0][0].x,
                          Part::kPieceFloats * sizeof(float));
          tma_store_commit();
          tma_store_wait_read<0>();  // it may be overwritten
          mbarrier_arrive(&shared.dq_empty[number]);
          if constexpr (Traits::kDeterministic) tma_store_wait<0>();  // the sums are in memory
        } else {
          //| At d = 256 dQ does not fit in shared memory, so consumers add it from registers. This thread
          //| then only waits for its turn: it polls the semaphore while the consumer multiplies, and passes
          //| the turn on when all warps have added.
          wait_for_turn(semaphore, turn);
          mbarrier_arrive(&shared.dq_empty[number]);       // the consumer may add
          mbarrier_wait(&shared.dq_full[number], parity);  // it has added
        }
        if constexpr (Traits::kDeterministic) store_release(semaphore, turn + 1);
        parity ^= 1;
      }
    }
  }
}

//| ## Stores
//|
//| dK and dV are stored directly from registers, so that the next tile's K and V can arrive in the meantime.
//| dK is multiplied by the scale of the scores here, which the loop has left out.
/// Stores a consumer's dK and dV of the tile at `first_key` of key head `head`, counted over the batch.
template <typename T, typename Traits>
__device__ __forceinline__ void store_gradients(const Gradients<T, Traits>& sums, const Problem& problem,
                                                T* dk,  // [batch, kv heads, seqlen_k, head_dim], strided
                                                T* dv, int head, int first_key) {
  const int key = first_key + sums.number * kRowsPerWarpgroup, valid = problem.seqlen_k - key;
  const int row = row_of_thread();
  if constexpr (Gradients<T, Traits>::kHasDv)
    store_from_registers(sums.dv, dv + problem.key_offset(problem.at.dv, head, key), problem.at.dv.row, row,
                         valid, 1.0f, problem.head_dim);
  if constexpr (Gradients<T, Traits>::kHasDk)
    store_from_registers(sums.dk, dk + problem.key_offset(problem.at.dk, head, key), problem.at.dk.row, row,
                         valid, problem.scale, problem.head_dim);
}

//| ## Grouped heads under a causal mask
//|
//| Several query heads may share a key head. A block that sums over all of them needs no memory for that, but
//| takes a tile of keys for as many times longer. Under a causal mask that is a poor bargain: the last long
//| tiles leave multiprocessors idle, and blocks that few queries see are soon many heads ahead of the others,
//| so that together they read far more than fits in the L2. So in step 5 a block takes a tile of keys for
//| *one* query head, as if each had keys of its own, and adds dK and dV to sums in memory, from registers, as
//| it does with dQ. A last kernel rounds these, too.
/// Adds a consumer's dK and dV of the tile at `first_key` to the sums of key head `head`, counted over the
/// batch.
template <typename T, typename Traits>
__device__ __forceinline__ void add_gradients(const Gradients<T, Traits>& sums, const KeySums& to, int head,
                                              int first_key) {
  using Part = DqPart<Traits::kHeadDim, kTileKeys>;
  const int row = head * to.padded_k + first_key;
  if constexpr (Gradients<T, Traits>::kHasDv)
    add_from_registers(sums.dv, Part::sums_of(to.dv, row, sums.number));
  if constexpr (Gradients<T, Traits>::kHasDk)
    add_from_registers(sums.dk, Part::sums_of(to.dk, row, sums.number));
}

/// Initialises the barriers, in one thread, and gives them the names that the simulator's reports use.
template <typename T, typename Traits>
__device__ __forceinline__ void make_barriers(HopperShared<T, Traits>& shared) {
  if constexpr (Traits::kLateDq)
    for (int place = 0; place < 2; ++place) {
      mbarrier_init(&shared.ds_full[place], kKeyConsumers * kWarpsPerWarpgroup);
      name_mbarrier(&shared.ds_full[place], "ds full", place);
    }
  initialise(shared, kHasAdders<Traits> ? kKeyConsumers : 0);
}

//| ## The kernel
//|
//| There are three warpgroups. Four threads of the first are the roles above, one per warp, since threads of
//| one warp would wait for each other; the others are the consumers. Each barrier expects 1 arrival for a
//| thread with TMA, 4 for the warps of a consumer, 8 for both.
/// Computes the gradients of the key tiles that this block takes.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1) hopper_backward(
    const __grid_constant__ TileMap q_map,        // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ TileMap k_map,        // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap v_map,        // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap do_map,       // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ CUtensorMap lse_map,  // [heads * padded_q], in the workspace
    const __grid_constant__ CUtensorMap d_map,    // [heads * padded_q], in the workspace
    T* dk,                                        // [batch, kv heads, seqlen_k, head_dim], strided
    T* dv,                                        // [batch, kv heads, seqlen_k, head_dim], strided
    Workspace workspace, Problem problem, TileOrder order,
    KeySums key_sums,   // kSharesKeys: 0 at the start
    int* counter,       // Schedule::dynamic_persistent: 0 at the start
    int* semaphores) {  // kDeterministic: [heads, tiles of queries, consumers], 0 at the start
  using Shared = HopperShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) make_barriers(shared);
  //| Up to here, the previous launch, which computes D, may still be running. At d = 256 there are two
  //| independent launches: dK and dQ first, then dV. Each block of the first lets the second begin once D is
  //| complete. So blocks of the second begin where the first ones end, without another wait, and there is one
  //| tail instead of two during which multiprocessors idle. The next launch relies on everything being done,
  //| so the second waits for the first at its own end.
  if constexpr (Shared::kHasDp) wait_for_launch_before();
  if constexpr (Traits::kSums == Sums::keys_and_queries) let_dependents_launch();
  __syncthreads();  // the barriers are ready

  //| The roles diverge here, and registers are redistributed. A producer keeps 24 or 40; a consumer at d =
  //| 128 holds 128 floats of dK and dV and up to 64 of scores and dP at the same time, and gets 240 or 232.
  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<Traits::kProducerRegisters>();
    if (threadIdx.x == 0) produce_q(shared, q_map, lse_map, problem, order, counter);
    if (threadIdx.x == 32) produce_keys(shared, k_map, v_map, do_map, d_map, problem, order);
    if constexpr (kHasAdders<Traits>)
      if (threadIdx.x == 64 || threadIdx.x == 96)
        add_dq(shared, workspace, problem, order, semaphores, warp - 2);
    return;
  }

  setmaxnreg_inc<Traits::kConsumerRegisters>();
  const int number = warpgroup - 1;
  PipelineState<kBroadcastStages> next;
  PipelineState<Traits::kStages> state;
  uint32_t parity = 0;
  for (;;) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) {
      if constexpr (!Shared::kHasDp) wait_for_launch_before();
      return;
    }
    //| A consumer takes a tile of keys, zeroes dK and dV, loops over the queries, and stores the results. The
    //| last query sees every key, so each tile has work, and each gradient is written.
    const int first_key = first_key_of<Traits>(order, work);
    const int kv_head = work.head.batch * problem.kv_heads + work.head.head;
    const QueryTiles tiles_seen = queries_of<Traits::kQueries>(problem, first_key);
    const int start = start_of<Traits>(tiles_seen, first_key);
    Gradients<T, Traits> gradients(shared, problem, number, warp);
    mbarrier_wait(&shared.keys_full, parity);
    parity ^= 1;
    float* before = nullptr;  // kLateDq: where dQ of the previous round is summed
#pragma unroll 1
    for (int member = 0; member < problem.group; ++member) {
#pragma unroll 1
      for (int round = 0; round < tiles_seen.tiles(); ++round) {
        const int query = tiles_seen.tile(round, start) * Traits::kQueries;
        //| dQ's address is needed only if consumers add to it.
        float* sums = nullptr;
        if constexpr (!Traits::kAddByTma && Shared::kHasDp)
          sums = Gradients<T, Traits>::Part::sums_of(
              workspace.dq, (kv_head * problem.group + member) * problem.padded_q + query, number);
        if constexpr (Traits::kLateDq) {
          if (before == nullptr)
            gradients.step(state, first_key, query, before);
          else
            gradients.template step<true>(state, first_key, query, before);
          before = sums;
        } else {
          gradients.step(state, first_key, query, sums);
        }
      }
    }
    if constexpr (Traits::kLateDq) gradients.finish_last(state, before);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.keys_empty);
    if (Traits::kSharesKeys && key_sums.dk != nullptr)
      add_gradients(gradients, key_sums, kv_head / problem.sharing, first_key);
    else
      store_gradients(gradients, problem, dk, dv, kv_head, first_key);
  }
}

//| ## dQ, rounded
//|
//| The last kernel rounds the sums, tile by tile, as
//| [`gradient_round.h`](../../common/hopper/gradient_round.h) explains.
/// Rounds dQ from the sums. Each of a block's kKeyConsumers warpgroups processes a part of a tile of queries.
/// Grid: tiles of queries of all heads.
template <typename T, int kHeadDim, int kQueries>
__global__ void __launch_bounds__(kKeyConsumerThreads) convert_dq_parts(
    const float* sums,  // [heads, padded_q, head_dim], parts of tiles in the order of registers
    T* dq,              // [batch, heads, seqlen_q, head_dim], strided
    Problem problem) {
  wait_for_launch_before();
  const int tiles = ceil_div(problem.seqlen_q, kQueries);
  const int head = int(blockIdx.x) / tiles, query = int(blockIdx.x) % tiles * kQueries;
  const int64_t row = int64_t(head) * problem.padded_q + query;
  const int first =
      query + (DqPart<kHeadDim, kQueries>::kByRows ? int(threadIdx.x / kWarpgroup) * kRowsPerWarpgroup : 0);
  round_dq<T, kHeadDim, kQueries>(sums + row * kHeadDim, problem.scale,
                                  dq + problem.query_offset(problem.at.dq, head, first), problem.at.dq.row,
                                  row_of_thread(), problem.seqlen_q - first, problem.head_dim);
}

/// Rounds dK and dV from the sums. Each of a block's warpgroups processes 64 keys. Grid: tiles of keys of all
/// key heads.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kKeyConsumerThreads)
    convert_keys(KeySums sums,
                 T* dk,  // [batch, kv heads, seqlen_k, head_dim], strided
                 T* dv, Problem problem) {
  wait_for_launch_before();
  const int of_head = sums.padded_k / kTileKeys;  // tiles
  const int head = int(blockIdx.x) / of_head, key = int(blockIdx.x) % of_head * kTileKeys;
  const int64_t at = (int64_t(head) * sums.padded_k + key) * kHeadDim;
  const int first = key + int(threadIdx.x / kWarpgroup) * kRowsPerWarpgroup;
  const int row = row_of_thread(), valid = problem.seqlen_k - first;
  round_dq<T, kHeadDim, kTileKeys>(sums.dk + at, problem.scale,
                                   dk + problem.key_offset(problem.at.dk, head, first), problem.at.dk.row,
                                   row, valid, problem.head_dim);
  round_dq<T, kHeadDim, kTileKeys>(sums.dv + at, 1.0f, dv + problem.key_offset(problem.at.dv, head, first),
                                   problem.at.dv.row, row, valid, problem.head_dim);
}

}  // namespace flashbook::backward
