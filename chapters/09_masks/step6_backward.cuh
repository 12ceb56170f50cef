//| # The kernel of step 6
//|
//| Roles are those of chapter 7: two threads load tiles, two add dQ, two warpgroups multiply. The four active
//| threads of the first warpgroup process the same lists, each at its own pace. The thread that loads Q takes
//| the next tile of keys and broadcasts it with its number of rounds. Next to each stage that it fills it
//| writes the list's entry.
//|
//| | thread | does | waits for |
//| | --- | --- | --- |
//| | 0 | takes the next tile of keys, loads Q and log-sum-exp | an empty stage |
//| | 32 | loads K, V, dO and D | empty stages, and the last products with K and V |
//| | 64, 96 | add a consumer's dQ, in a block that sums all three gradients; in step 7 they wait for its turn | the consumer; earlier blocks |
//| | 128 to 383 | two consumers: five products | full stages; each other's dS |
//|
//| ![Thread 0 takes tiles of keys and loads Q, thread 32 loads K, V and dO, two threads add dQ; the memory
//| between them and the consumers, and the barriers](../../docs/figures/masks_block_backward.svg)
#pragma once
#include "chapters/09_masks/step6_wide.cuh"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::masks {

//| ## Processing the lists
//|
//| A tile of keys has a list for each query head of the group, the heads that share its key head. The block
//| processes one list after another, and dK and dV stay in registers until the last one is done.
/// Calls `use(q, entry)` for every tile of queries that sees the work's keys, head after head of the group;
/// or `use(q, entry, turn)`, if it takes that.
template <typename Use>
__device__ __forceinline__ void for_each_query_tile(const GradientProblem& problem, const Lists& lists,
                                                    const KeyWork& work, const Use& use) {
  Head q{work.head.head * problem.group, work.head.batch};
#pragma unroll 1
  for (int member = problem.group; member > 0; --member, ++q.head) {
    const QueryList list = lists.at(q, work.tile);
    const int* const entries = lists.entries + list.first;
#pragma unroll 1
    for (int i = 0; i < list.count; ++i) {
      if constexpr (std::is_invocable_v<const Use&, const Head&, int, int>)
        use(q, entries[i], problem.in_turns ? lists.turns[list.first + i] : 0);
      else
        use(q, entries[i]);
    }
  }
}

//| ## Producers
//|
//| Rows past the end of the sequence are loaded as zeros, by a tensor map that ends with the sequence
//| (`step2_varlen.cuh`), and their log-sum-exp is +inf.

//| The thread takes the next tile of keys only after it has requested the last queries of this one. A tile
//| taken too early would wait until this one is done, although another block might be free. With wide keys a
//| producer has 24 registers, too few for the work: the thread makes it in shared memory, where all others
//| read it, and counts tiles and stages instead of keeping two states.
/// Runs the thread that takes tiles of keys, broadcasts them, and loads Q.
template <typename T, typename Traits>
__device__ __forceinline__ void produce_q(GradientShared<T, Traits>& shared, const TileMap& q_map,
                                          const CUtensorMap& lse_map, const GradientProblem& problem,
                                          const KeyTiles& tiles, const Lists& lists, int* counter) {
  uint32_t filled = 0;
#pragma unroll 1
  for (uint32_t number = 0;; ++number) {
    const PipelineState<2> next{int(number % 2), number / 2 % 2};
    wait_empty(shared.broadcast.work, next);  // all have read what was here before
    KeyWork& work = shared.broadcast.work.tile[next.stage];
    if (tiles.take(work, problem, atomicAdd(counter, 1))) {
      //| There is a round for each entry of each head of the group. A consumer receives only their number,
      //| and needs no list.
      int rounds = 0;
      for (int member = 0; member < problem.group; ++member)
        rounds += lists.at({work.head.head * problem.group + member, work.head.batch}, work.tile).count;
      work.rounds = rounds;
      tiles.template locate<kTileKeys>(work, problem);
    } else {
      work.first_key = -1;
    }
    mbarrier_arrive(&shared.broadcast.work.full[next.stage]);
    if (work.first_key < 0) return;
    PipelineState<Traits::kStages> state{int(filled % Traits::kStages), filled / Traits::kStages % 2};
    filled += work.rounds;
    for_each_query_tile(problem, lists, work, [&](const Head& q, int entry) {
      wait_empty(shared.q, state);
      shared.broadcast.query_tile[state.stage] = {q.head, entry};  // before `full`, which consumers wait for
      const int query = QueryList::tile(entry) * Traits::kQueries;
      fill_queries(shared.q, state, shared.lse, q_map, lse_map, work.q_rows.row + query,
                   work.q_rows.of(q.head, problem.q_map_strides),
                   problem.workspace_row(q) + work.first_row + query);
    });
  }
}

//| There is space for one K and one V. The next ones are requested when both consumers are done with the last
//| products, and are in flight while the consumers store dK and dV.
/// Runs the thread that loads K, V and dO.
template <typename T, typename Traits>
__device__ __forceinline__ void produce_keys_and_do(GradientShared<T, Traits>& shared, const TileMap& k_map,
                                                    const TileMap& v_map, const TileMap& do_map,
                                                    const CUtensorMap& d_map, const GradientProblem& problem,
                                                    const Lists& lists) {
  using Shared = GradientShared<T, Traits>;
  PipelineState<2> next;
  PipelineState<kDoStages<Traits>> state;
#pragma unroll 1
  for (uint32_t parity = 0;; parity ^= 1) {
    wait_full(shared.broadcast.work, next);
    const KeyWork& work = shared.broadcast.work.tile[next.stage];
    if (work.first_key < 0) return;
    mbarrier_wait(&shared.keys_empty, parity ^ 1);  // the products that read the last tile are done
    mbarrier_arrive_expect_tx(&shared.keys_full, Shared::kKeyBytes);
    //| The sequence's layout gives the keys' place: its first row for TMA, and the map's last two indices.
    const Head k_rows = work.k_rows.of(work.head.head, problem.k_map_strides);
    const Head v_rows = work.k_rows.of(work.head.head, problem.v_map_strides);
    const int row = work.k_rows.row + work.first_key;
    load_keys<Traits::kHeadDim>(shared.k, k_map, &shared.keys_full, row, k_rows);
    if constexpr (Shared::kHasDp) load(shared.v, v_map, &shared.keys_full, row, v_rows);
    for_each_query_tile(problem, lists, work, [&](const Head& q, int entry) {
      wait_empty(shared.d_o, state);
      const int query = QueryList::tile(entry) * Traits::kQueries;
      fill_queries(shared.d_o, state, shared.d, do_map, d_map, work.q_rows.row + query,
                   work.q_rows.of(q.head, problem.d_o_map_strides),
                   problem.workspace_row(q) + work.first_row + query);
    });
    release(shared.broadcast.work, next);
    next.advance();
  }
}

//| ## The threads that add
//|
//| For each consumer, one thread passes the part of dQ to TMA. Other blocks add to the same rows at the same
//| time, in any order. So two launches of step 6 differ in the last bits.
//|
//| **Step 7** is the same kernel with turns, which are stored next to the entries, and the thread waits for
//| its entry's turn. Blocks take tiles in the order of the turns, so a block waits only for others that are
//| running or done. If dV has a separate launch, consumers add from registers, and this thread only signals
//| when. Whether there are turns is decided at run time: once per entry by this thread, and, if consumers
//| add, twice per round by a consumer. So no second set of kernels needs to be compiled.
/// Runs a thread that adds one consumer's part of dQ, tile after tile.
template <typename T, typename Traits, typename Consumer>
__device__ __forceinline__ void add_dq(GradientShared<T, Traits>& shared, float* dq,
                                       const GradientProblem& problem, const Lists& lists, int number) {
  PipelineState<2> next;
  uint32_t parity = 0;
#pragma unroll 1
  for (;;) {
    wait_full(shared.broadcast.work, next);
    const KeyWork& work = shared.broadcast.work.tile[next.stage];
    if (work.first_key < 0) return;
    for_each_query_tile(problem, lists, work, [&](const Head& q, int entry, int turn) {
      const int row = problem.workspace_row(q) + work.first_row + QueryList::tile(entry) * Traits::kQueries;
      int* const semaphore = lists.semaphores + row / Traits::kQueries * kKeyConsumers + number;
      //| With turns, the next block may add only when the sums are in memory, not when TMA has read them.
      if constexpr (Traits::kAddByTma) {
        mbarrier_wait(&shared.dq_full[number], parity);  // the part has been written
        if (problem.in_turns) wait_for_turn(semaphore, turn);
        if (!Traits::kStoresDq || !problem.is_stored(work.sequence)) {
          bulk_reduce_add(Consumer::Part::sums_of(dq, row, number), &shared.dq[number][0][0].x,
                          Consumer::Part::kPieceFloats * sizeof(float));
          tma_store_commit();
          tma_store_wait_read<0>();
        }
        mbarrier_arrive(&shared.dq_empty[number]);  // the consumer may write its next part
        if (problem.in_turns) tma_store_wait<0>();  // the sums are in memory
      } else {
        wait_for_turn(semaphore, turn);
        mbarrier_arrive(&shared.dq_empty[number]);       // the consumer may add
        mbarrier_wait(&shared.dq_full[number], parity);  // the consumer has added
      }
      if (problem.in_turns) store_release(semaphore, turn + 1);
      parity ^= 1;
    });
    release(shared.broadcast.work, next);
    next.advance();
  }
}

//| ## dQ, rounded
//|
//| The last kernel converts all tiles of the workspace, and skips those that belong to no document, or whose
//| dQ a block has stored. A query that saw no key has sums of zero, so zeros are written.
/// Rounds dQ from the sums. A block processes a tile of kQueries queries, and each of its warpgroups a part
/// of the tile. Grid: tiles of the workspace.
template <typename T, int kHeadDim, int kQueries>
__global__ void __launch_bounds__(kKeyConsumerThreads)
    convert_dq(const float* sums,  // [heads, padded_q, head_dim], parts of tiles in the order of registers
               T* dq,              // [batch, heads, seqlen_q, head_dim], strided
               const __grid_constant__ GradientProblem problem) {
  wait_for_launch_before();
  const int tiles = problem.padded_q / kQueries, head = int(blockIdx.x) / tiles;
  int tile_query = int(blockIdx.x) % tiles * kQueries;
  const Sequence sequence = problem.sequence_of(tile_query);
  if (tile_query >= sequence.queries || problem.is_stored(sequence)) return;
  const int first = DqPart<kHeadDim, kQueries>::kByRows ? int(threadIdx.x / kWarpgroup) * kRowsPerWarpgroup
                                                        : 0;  // first of the warpgroup's queries
  round_dq<T, kHeadDim, kQueries>(
      sums + int64_t(blockIdx.x) * kQueries * kHeadDim, problem.scale,
      dq + offset_of(problem.at.dq, {head % problem.heads, head / problem.heads}, sequence.first_query),
      problem.at.dq.row, tile_query + first + row_of_thread(), sequence.queries, problem.head_dim);
}

//| ## The kernel
//|
//| Roles and barriers are as in chapter 7.
/// Computes the gradients of the key tiles that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Traits, typename Mask, typename Score>
__global__ void __launch_bounds__(Traits::kThreads, 1) masked_backward(
    const __grid_constant__ TileMap q_map,        // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ TileMap k_map,        // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap v_map,        // [batch, kv heads, panels, seqlen_k, 64]; may be narrower
    const __grid_constant__ TileMap do_map,       // [batch, heads, panels, seqlen_q, 64], too
    const __grid_constant__ CUtensorMap lse_map,  // [heads * padded_q], of the workspace
    const __grid_constant__ CUtensorMap d_map,    // [heads * padded_q], of the workspace
    T* dk,                                        // [batch, kv heads, seqlen_k, head_dim], strided
    T* dv,                                        // [batch, kv heads, seqlen_k, value_dim], strided
    T* dq,                                        // [batch, heads, seqlen_q, head_dim], strided
    float* dq_sums,                               // [heads * padded_q, head_dim], in the workspace
    const __grid_constant__ GradientProblem problem, const __grid_constant__ KeyTiles tiles,
    const __grid_constant__ Lists lists, const __grid_constant__ Mask mask,
    const __grid_constant__ Score score,
    int* counter) {  // must be 0 at the start
  //| The mask and the score function are arguments too, in constant memory.
  using Shared = GradientShared<T, Traits>;
  using Consumer = std::conditional_t<Traits::kWide, WideGradients<T, Traits, Mask, Score>,
                                      Gradients<T, Traits, Mask, Score>>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  const bool adds = Traits::kSums != Sums::values && (Traits::kAddByTma || problem.in_turns);
  if (threadIdx.x == 0) initialise(shared, adds ? kKeyConsumers : 0);
  wait_for_launch_before();
  __syncthreads();  // the barriers are ready

  //| From here on each warpgroup has its role, and registers are redistributed: a thread of a producer keeps
  //| 40, a thread of a consumer gets 232; with wide keys 24 and 240.
  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<Traits::kProducerRegisters>();
    if (threadIdx.x == 0) produce_q(shared, q_map, lse_map, problem, tiles, lists, counter);
    if (threadIdx.x == 32) produce_keys_and_do(shared, k_map, v_map, do_map, d_map, problem, lists);
    if constexpr (Traits::kSums != Sums::values)
      if (adds && (threadIdx.x == 64 || threadIdx.x == 96))
        add_dq<T, Traits, Consumer>(shared, dq_sums, problem, lists, warp - 2);
    return;
  }

  //| A consumer takes a tile of keys, zeroes dK and dV, goes through the work's rounds, and stores the
  //| results. It reads the work in place, and releases it at the end.
  setmaxnreg_inc<Traits::kConsumerRegisters>();
  const int number = warpgroup - 1;
  PipelineState<2> next;
  PipelineState<Traits::kStages> state;
  [[maybe_unused]] PipelineState<kDoStages<Traits>> do_state;
  for (uint32_t parity = 0;; parity ^= 1) {
    wait_full(shared.broadcast.work, next);
    const KeyWork& work = shared.broadcast.work.tile[next.stage];
    if (work.first_key < 0) return;
    Consumer gradients(shared, problem, mask, score, work, number, warp);
    gradients.begin();
    mbarrier_wait(&shared.keys_full, parity);
    if constexpr (Traits::kWide) {
      gradients.run(state, do_state, dq_sums);
    } else {
      gradients.run(state, dq_sums, dq);
      release_keys(shared);
    }
    //| K and V may be overwritten from here on; dK and dV are stored from registers.
    gradients.store(dk, dv);
    __syncwarp();  // all lanes have read what they need of the work
    release(shared.broadcast.work, next);
    next.advance();
  }
}

}  // namespace flashbook::masks
