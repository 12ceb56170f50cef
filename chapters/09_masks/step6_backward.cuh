//| # The kernel of step 6
//|
//| Roles are those of chapter 7: two threads bring tiles, two add dQ, two warpgroups multiply. The four threads of the first warpgroup go through the same lists, each at its own pace. The thread that brings Q takes the next tile of keys and tells the others which it is and how many rounds it has. Beside each stage that it fills it writes the list's entry.
//|
//| | thread | does | waits for |
//| | --- | --- | --- |
//| | 0 | takes the next tile of keys, brings Q and log-sum-exp | an empty stage |
//| | 32 | brings K, V, dO and D | empty stages, and the last products with K and V |
//| | 64, 96 | add a consumer's dQ, in a block that sums all three gradients | the consumer |
//| | 128 to 383 | two consumers: five products | full stages; each other's dS |
//|
//| ![Thread 0 takes tiles of keys and brings Q, thread 32 brings K, V and dO, two threads add dQ; what lies between them and the consumers, and the barriers](../../docs/figures/masks_block_backward.svg)
#pragma once
#include "chapters/09_masks/step6_backward_block.cuh"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::masks {

//| ## Going through the lists
//|
//| A tile of keys has a list for each query head of the group, the heads that share its key head. The block goes through one after another, and dK and dV stay in the registers until the last is done.
/// Calls `use(q, entry)` for every tile of queries that sees the work's keys, head after head of the group.
template <typename Use>
__device__ __forceinline__ void for_each_query_tile(const GradientProblem& problem, const Lists& lists,
                                                    const KeyWork& work, const Use& use) {
  Head q{work.head.head * problem.group, work.head.batch};
#pragma unroll 1
  for (int member = problem.group; member > 0; --member, ++q.head) {
    const QueryList list = lists.at(q, work.tile);
    const int* const entries = lists.entries + list.first;
#pragma unroll 1
    for (int i = 0; i < list.count; ++i) use(q, entries[i]);
  }
}

//| ## Producers
//|
//| A stage of Q comes with the log-sum-exp of its rows, a stage of dO with their D. Tile and numbers arrive at one mbarrier, so a consumer waits once for both. Rows beyond the end of the sequence come as zeros, from a tensor map that ends there (`step2_packed.cuh`), and their log-sum-exp is +inf.
/// Brings a tile of queries, and what the workspace has of each of its rows.
template <typename Queries, int kStages, int kQueries>
__device__ __forceinline__ void fill_queries(hopper::Pipeline<Queries, kStages>& pipeline,
                                             hopper::PipelineState<kStages>& state,
                                             float (&of_rows)[kStages][kQueries], const CUtensorMap& map,
                                             const MapUnits& units, const CUtensorMap& row_map,
                                             const KeyWork& work, const Head& q, int first_query,
                                             int head_row) {
  //| The row of the workspace is counted over all heads, as its map has one dimension.
  uint64_t* const full = &pipeline.full[state.stage];
  mbarrier_arrive_expect_tx(full, Queries::kBytes + sizeof(of_rows[0]));
  load(pipeline.tile[state.stage], map, full, work.q_rows.row + first_query, work.q_rows.of(q.head, units));
  tma_load(of_rows[state.stage], row_map, full, {head_row + work.first_row + first_query});
  state.advance();
}

//| The thread takes the next tile of keys after it has asked for the last queries of this one, and not earlier. A tile that it took early would wait until this one is done, and no other block could have it.
/// The thread that takes tiles of keys, tells all others, and brings Q.
template <typename T, typename Sizes>
__device__ __forceinline__ void produce_q(GradientShared<T, Sizes>& shared, const CUtensorMap& q_map,
                                          const CUtensorMap& lse_map, const GradientProblem& problem,
                                          const KeyTiles& tiles, const Lists& lists, int* counter) {
  hopper::PipelineState<2> next;
  hopper::PipelineState<Sizes::kStages> state;
#pragma unroll 1
  for (;;) {
    KeyWork work = tiles.template at<kTileKeys>(problem, atomicAdd(counter, 1));
    if (work.first_key >= 0)
      for (int member = 0; member < problem.group; ++member)
        work.rounds += lists.at({work.head.head * problem.group + member, work.head.batch}, work.tile).count;
    //| There is a round for each entry of each head of the group. A consumer is told their number, and needs no list.
    wait_empty(shared.work, next);  // all have read what stood here before
    shared.work.tile[next.stage] = work;
    mbarrier_arrive(&shared.work.full[next.stage]);
    next.advance();
    if (work.first_key < 0) return;
    for_each_query_tile(problem, lists, work, [&](const Head& q, int entry) {
      wait_empty(shared.q, state);
      shared.query_tile[state.stage] = {q.head, entry};  // before `full`, which consumers wait for
      fill_queries(shared.q, state, shared.lse, q_map, problem.q_units, lse_map, work, q,
                   QueryList::tile(entry) * Sizes::kQueries, problem.workspace_row(q));
    });
  }
}

//| The other three threads copy the work into registers, of which they have enough, and give its place back at once.
/// A copy of the block's next work. One thread, alone in its warp.
template <typename Broadcast>
__device__ __forceinline__ KeyWork next_key_work(Broadcast& broadcast, hopper::PipelineState<2>& state) {
  wait_full(broadcast, state);
  const KeyWork work = broadcast.tile[state.stage];
  release(broadcast, state);
  state.advance();
  return work;
}

//| K and V have one place each. The next ones may come when both consumers are done with the last products; they travel while the consumers store dK and dV.
/// The thread that brings K, V and dO.
template <typename T, typename Sizes>
__device__ __forceinline__ void produce_keys_and_do(GradientShared<T, Sizes>& shared,
                                                    const CUtensorMap& k_map, const CUtensorMap& v_map,
                                                    const CUtensorMap& do_map, const CUtensorMap& d_map,
                                                    const GradientProblem& problem, const Lists& lists) {
  using Shared = GradientShared<T, Sizes>;
  hopper::PipelineState<2> next;
  hopper::PipelineState<Sizes::kStages> state;
#pragma unroll 1
  for (uint32_t parity = 0;; parity ^= 1) {
    const KeyWork work = next_key_work(shared.work, next);
    if (work.first_key < 0) return;
    mbarrier_wait(&shared.keys_empty, parity ^ 1);  // the products that read the last tile are done
    mbarrier_arrive_expect_tx(&shared.keys_full, (Shared::kHasDp ? 2 : 1) * Shared::Keys::kBytes);
    //| Keys are named as the sequence lies: its first row for TMA, and the map's last two indices.
    const Head k_rows = work.k_rows.of(work.head.head, problem.k_units);
    const Head v_rows = work.k_rows.of(work.head.head, problem.v_units);
    const int row = work.k_rows.row + work.first_key;
    load(shared.k, k_map, &shared.keys_full, row, k_rows);
    if constexpr (Shared::kHasDp) load(shared.v, v_map, &shared.keys_full, row, v_rows);
    for_each_query_tile(problem, lists, work, [&](const Head& q, int entry) {
      wait_empty(shared.d_o, state);
      fill_queries(shared.d_o, state, shared.d, do_map, problem.d_o_units, d_map, work, q,
                   QueryList::tile(entry) * Sizes::kQueries, problem.workspace_row(q));
    });
  }
}

//| ## The threads that add
//|
//| Each consumer has a thread that hands its part of dQ to TMA. Other blocks add to the same rows at the same time, in the order in which they happen to come. So two launches differ in the last bits.
/// A thread that adds one consumer's part of dQ, tile after tile.
template <typename T, typename Sizes, typename Consumer>
__device__ __forceinline__ void add_dq(GradientShared<T, Sizes>& shared, float* dq,
                                       const GradientProblem& problem, const Lists& lists, int number) {
  hopper::PipelineState<2> next;
  uint32_t parity = 0;
#pragma unroll 1
  for (;;) {
    const KeyWork work = next_key_work(shared.work, next);
    if (work.first_key < 0) return;
    for_each_query_tile(problem, lists, work, [&](const Head& q, int entry) {
      const int row = problem.workspace_row(q) + work.first_row + QueryList::tile(entry) * Sizes::kQueries;
      mbarrier_wait(&shared.dq_full[number], parity);  // the part is written
      bulk_reduce_add(Consumer::part_of(dq, row, number), &shared.dq[number][0][0].x,
                      Consumer::Part::kPieceFloats * sizeof(float));
      tma_store_commit();
      tma_store_wait_read<0>();
      mbarrier_arrive(&shared.dq_empty[number]);  // the consumer may write its next part
      parity ^= 1;
    });
  }
}

//| ## The kernel
//|
//| Each barrier is told how many arrive: 1 for a thread with TMA, 4 for the warps of a consumer, 8 for both. The broadcast is read by the eight warps of the consumers, by the second producer, and by the threads that add.
/// The gradients of the tiles of keys that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Sizes, typename Mask, typename Score>
__global__ void __launch_bounds__(Sizes::kThreads, 1)
    masked_backward(const __grid_constant__ CUtensorMap q_map,    // [batch, heads, panels, seqlen_q, 64]
                    const __grid_constant__ CUtensorMap k_map,    // [batch, kv heads, panels, seqlen_k, 64]
                    const __grid_constant__ CUtensorMap v_map,    // [batch, kv heads, panels, seqlen_k, 64]
                    const __grid_constant__ CUtensorMap do_map,   // [batch, heads, panels, seqlen_q, 64]
                    const __grid_constant__ CUtensorMap lse_map,  // [heads * padded_q], of the workspace
                    const __grid_constant__ CUtensorMap d_map,    // [heads * padded_q], of the workspace
                    T* dk,      // [batch, kv heads, seqlen_k, head_dim], strided
                    T* dv,      // [batch, kv heads, seqlen_k, head_dim], strided
                    float* dq,  // [heads * padded_q, head_dim], sums in the workspace
                    const __grid_constant__ GradientProblem problem, const __grid_constant__ KeyTiles tiles,
                    const __grid_constant__ Lists lists, const __grid_constant__ Mask mask,
                    const __grid_constant__ Score score,
                    int* counter) {  // 0 at the start
  //| Mask and function are arguments too, and lie in constant memory for all threads.
  using Shared = GradientShared<T, Sizes>;
  using Consumer = Gradients<T, Sizes, Mask, Score>;
  static_assert(sizeof(Shared) <= hopper::kMostSharedBytes,
                "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kKeyConsumers * kWarpsOfWarpgroup;
    initialise(shared.q, 1, kConsumerWarps, "q full", "q empty");
    initialise(shared.d_o, 1, kConsumerWarps, "do full", "do empty");
    initialise(shared.work, 1, kConsumerWarps + 1 + (Sizes::kAddByTma ? kKeyConsumers : 0), "work full",
               "work empty");
    //| K and V arrive by one thread's bytes, and are given back by all warps. Each consumer's dQ goes the other way: four warps fill, one thread empties.
    mbarrier_init(&shared.keys_full, 1);
    name_mbarrier(&shared.keys_full, "keys full");
    mbarrier_init(&shared.keys_empty, kConsumerWarps);
    name_mbarrier(&shared.keys_empty, "keys empty");
    for (int i = 0; i < kKeyConsumers; ++i) {
      mbarrier_init(&shared.dq_full[i], kWarpsOfWarpgroup);
      name_mbarrier(&shared.dq_full[i], "dq full", i);
      mbarrier_init(&shared.dq_empty[i], 1);
      name_mbarrier(&shared.dq_empty[i], "dq empty", i);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  //| From here on each warpgroup has its role, and registers move: a thread of the producer keeps 40, one of a consumer has 232.
  // The same in all threads of a warp; the shuffle tells the compiler so.
  const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32, 0), warpgroup = warp / kWarpsOfWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<Sizes::kProducerRegisters>();
    if (threadIdx.x == 0) produce_q(shared, q_map, lse_map, problem, tiles, lists, counter);
    if (threadIdx.x == 32) produce_keys_and_do(shared, k_map, v_map, do_map, d_map, problem, lists);
    if constexpr (Sizes::kAddByTma)
      if (threadIdx.x == 64 || threadIdx.x == 96)
        add_dq<T, Sizes, Consumer>(shared, dq, problem, lists, warp - 2);
    return;
  }

  //| A consumer takes a tile of keys, sets dK and dV to zero, goes through as many rounds as the work says, and stores. It reads the work where it lies, and gives its place back at the end.
  setmaxnreg_inc<Sizes::kConsumerRegisters>();
  const int number = warpgroup - 1;
  hopper::PipelineState<2> next;
  hopper::PipelineState<Sizes::kStages> state;
  for (uint32_t parity = 0;; parity ^= 1) {
    wait_full(shared.work, next);
    const KeyWork& work = shared.work.tile[next.stage];
    if (work.first_key < 0) return;
    Consumer gradients(shared, problem, mask, score, work, number, warp);
    gradients.begin();
    mbarrier_wait(&shared.keys_full, parity);
#pragma unroll 1
    for (int left = work.rounds; left > 0; --left) gradients.step(state, dq);
    //| K and V are free from here on; dK and dV leave from the registers.
    __syncwarp();  // all lanes have waited for their last products
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.keys_empty);
    gradients.store(dk, dv);
    __syncwarp();  // all lanes have read what they need of the work
    release(shared.work, next);
    next.advance();
  }
}

//| ## dQ, rounded
//|
//| The last kernel reads the sums in the order of registers in which they were added, so each thread has the elements of a `wgmma` accumulator again. It goes through all tiles of the workspace, and leaves out those that belong to no document. A query that saw nothing has sums of zero, and zeros are written.
/// Rounds dQ from the sums. A block has a tile of kQueries queries, each of its warpgroups a part. Grid:
/// tiles of the workspace.
template <typename T, int kHeadDim, int kQueries>
__global__ void __launch_bounds__(kKeyConsumers* kWarpgroup)
    convert_dq(const float* sums,  // [heads, padded_q, head_dim], parts of tiles in the order of registers
               T* dq,              // [batch, heads, seqlen_q, head_dim], strided
               const __grid_constant__ GradientProblem problem) {
  using Part = hopper::DqPart<kHeadDim, kQueries>;
  const int number = threadIdx.x / kWarpgroup, tiles = problem.padded_q / kQueries;
  const int head = int(blockIdx.x) / tiles;
  int tile_query = int(blockIdx.x) % tiles * kQueries;
  const Sequence sequence = problem.sequence_of(tile_query);
  if (tile_query >= sequence.queries) return;
  T* to = dq + offset_of(problem.at.dq, {head % problem.heads, head / problem.heads}, sequence.first_query) +
          (Part::kByRows ? 0 : number * Part::kColumns);
  const int warp_row = threadIdx.x / 32 % kWarpsOfWarpgroup * kRowsOfWarp + int(threadIdx.x % 32 / 4);
  const int query = tile_query + (Part::kByRows ? number * kRowsOfWarpgroup : 0) + warp_row;
  const auto* from = reinterpret_cast<const float4*>(sums + int64_t(blockIdx.x) * kQueries * kHeadDim) +
                     number * (Part::kPieces * Part::kPieceFloats / 4) + threadIdx.x % kWarpgroup;
  //| One piece at d = 64 and 128, two at 256.
#pragma unroll
  for (int piece = 0; piece < Part::kPieces; ++piece, to += hopper::kPanel, from += Part::kPieceFloats / 4) {
    float floats[Part::kFloats];
#pragma unroll
    for (int i = 0; i < Part::kFloats; i += 4) {
      const float4 four = from[i / 4 * kWarpgroup];
      floats[i] = problem.scale * four.x, floats[i + 1] = problem.scale * four.y;
      floats[i + 2] = problem.scale * four.z, floats[i + 3] = problem.scale * four.w;
    }
    hopper::store_from_registers(floats, to, problem.at.dq.row, query, sequence.queries);
  }
}

}  // namespace flashbook::masks
