//| # The gradient's blocks
//|
//| Chapter 7's roles around the round of [`step6_round.cuh`](step6_round.cuh): one thread hands out tiles of
//| keys and loads Q, one loads K, V and dO, two issue TMA additions to dQ, and two warpgroups multiply. Two
//| things are new. It can happen that no query of this rank sees a tile of keys; then no tile of queries is
//| loaded, and the gradients are zeros. And dK and dV may be a *part*, which is stored in float32 because
//| other ranks add to it.
//|
//| ![Chapter 7's loops over the same tiles. This is the one on the right: a block owns keys, goes down a
//| column, and adds to dQ](../../docs/figures/backward_loops.svg)
#pragma once
#include "chapters/10_many_gpus/step6_round.cuh"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::many_gpus {

//| ## Which keys, which queries
//|
//| All roles of a block compute the same tiles of queries from the tile of keys, or read them from the host's
//| list of documents. Under a causal mask, different tiles of keys start at different queries, so blocks
//| rarely add to the same dQ. Without a mask, every block starts at a different tile and wraps around;
//| otherwise all would add to the same dQ at once.
/// The tiles of queries that are processed for a tile of keys.
struct QueryTiles {
  int first, end, start;

  __device__ __forceinline__ int tiles() const { return end - first; }
  /// Returns the tile of a round.
  __device__ __forceinline__ int tile(int round) const {
    const int at = start + round;
    return at < end ? at : at - tiles();
  }
};

/// Returns the query tiles for a tile of keys.
template <typename Version>
__device__ __forceinline__ QueryTiles queries_of(const typename Version::Problem& problem,
                                                 const WorkTile& work, int first_key) {
  constexpr int kQueries = Version::kQueries;
  const int end = (problem.seqlen_q + kQueries - 1) / kQueries;
  if constexpr (Version::kSeen == Seen::causal) {
    const int first = min(problem.first_query(first_key) / kQueries, end);
    return {first, end, first};
  }
  //| With documents, the list has the range of queries that see a key of the tile, which may be empty.
  if constexpr (Version::kSeen == Seen::documents) {
    const QueriesOfKey seen = problem.tiles[work.query_tile].queries;
    const int first = seen.begin / kQueries, last = (seen.end + kQueries - 1) / kQueries;
    return {first, last, problem.causal || last == 0 ? first : first + first_key / kQueries % (last - first)};
  }
  return {0, end, first_key / kQueries % end};
}

//| The scheduler numbers the tiles of a head from the last one down, to start with the longest. But the first
//| keys are seen by the most queries, so the number is reversed. The documents' list already has its longest
//| tile last.
/// Returns the first key of a tile.
template <typename Version>
__device__ __forceinline__ int first_key_of(const typename Version::Problem& problem, const TileOrder& order,
                                            const WorkTile& work) {
  if constexpr (Version::kSeen == Seen::documents) return problem.tiles[work.query_tile].key;
  return (order.tiles_of_head - 1 - work.query_tile) * kTileKeys;
}

//| A group of query heads shares a key head, and a key's gradient sums over all of them. So both producers
//| loop over the heads of the group and the tiles of each, one with Q and the log-sum-exp, the other with dO
//| and D.
/// Streams all query tiles for the keys from `first_key` on, head after head of the group.
template <typename Version, typename Queries, int kStages, int kQueries>
__device__ __forceinline__ void stream_queries(Pipeline<Queries, kStages>& pipeline,
                                               PipelineState<kStages>& state,
                                               float (&row_values)[kStages][kQueries], const CUtensorMap& map,
                                               const CUtensorMap& row_map,
                                               const typename Version::Problem& problem, const WorkTile& work,
                                               int first_key) {
  Head head{work.head.head * problem.group, 0};
  int row = head.head * problem.padded_q;
  const QueryTiles seen = queries_of<Version>(problem, work, first_key);
#pragma unroll 1
  for (int member = problem.group; member > 0; --member, ++head.head, row += problem.padded_q)
#pragma unroll 1
    for (int round = 0; round < seen.tiles(); ++round) {
      const int query = seen.tile(round) * kQueries;
      wait_empty(pipeline, state);
      fill_queries(pipeline, state, row_values, map, row_map, query, head, row + query);
    }
}

//| ## The producers
//|
//| The first producer takes the next tile of keys once it has requested the last queries of this one, and
//| broadcasts it.
/// Runs the thread that takes tiles of keys and loads Q.
template <typename T, typename Version>
__device__ __forceinline__ void produce_q(BackwardShared<T, Version>& shared, const CUtensorMap& q_map,
                                          const CUtensorMap& lse_map,
                                          const typename Version::Problem& problem, const TileOrder& order,
                                          int* counter) {
  PipelineState<Version::kStages> state;
  hand_out_tiles<Version::kSchedule>(shared.broadcast, order, counter, [&](const WorkTile& work) {
    stream_queries<Version>(shared.q, state, shared.lse, q_map, lse_map, problem, work,
                            first_key_of<Version>(problem, order, work));
  });
}

//| The second loads K and V once per tile of keys, and dO for each tile of queries. K and V have a single
//| buffer each, which is overwritten only after both consumers are done with it.
/// Runs the thread that loads K, V and dO.
template <typename T, typename Version>
__device__ __forceinline__ void produce_kv(BackwardShared<T, Version>& shared, const CUtensorMap& k_map,
                                           const CUtensorMap& v_map, const CUtensorMap& do_map,
                                           const CUtensorMap& d_map, const typename Version::Problem& problem,
                                           const TileOrder& order) {
  using Shared = BackwardShared<T, Version>;
  PipelineState<kBroadcastStages> next;
  PipelineState<Version::kStages> state;
  uint32_t parity = 0;
#pragma unroll 1
  for (;;) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int first_key = first_key_of<Version>(problem, order, work);
    mbarrier_wait(&shared.keys_empty, parity ^ 1);  // the products that read the last tile are done
    parity ^= 1;
    mbarrier_arrive_expect_tx(&shared.keys_full, (Shared::kHasDp ? 2 : 1) * Shared::Keys::kBytes);
    load(shared.k, k_map, &shared.keys_full, first_key, work.head);
    if constexpr (Shared::kHasDp) load(shared.v, v_map, &shared.keys_full, first_key, work.head);
    stream_queries<Version>(shared.d_o, state, shared.d, do_map, d_map, problem, work, first_key);
  }
}

//| One thread per consumer passes that part of dQ to TMA: a pipeline of one stage, which the consumer fills
//| and TMA empties. The sums stay in place from hop to hop, and every hop adds to them, so dQ needs no merge.
/// Runs a thread that adds one consumer's part of dQ, tile after tile.
template <typename T, typename Version>
__device__ __forceinline__ void add_dq(BackwardShared<T, Version>& shared, float* dq,
                                       const typename Version::Problem& problem, const TileOrder& order,
                                       int number) {
  using Part = DqPart<Version::kHeadDim, Version::kQueries>;
  PipelineState<kBroadcastStages> next;
  uint32_t parity = 0;
  //| The loops match those of the producers, so tile, head and round agree without communication.
#pragma unroll 1
  for (;;) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const QueryTiles seen = queries_of<Version>(problem, work, first_key_of<Version>(problem, order, work));
#pragma unroll 1
    for (int member = 0; member < problem.group; ++member) {
      const int row = (work.head.head * problem.group + member) * problem.padded_q;
#pragma unroll 1
      for (int round = 0; round < seen.tiles(); ++round, parity ^= 1) {
        mbarrier_wait(&shared.dq_full[number], parity);  // the part has been written
        bulk_reduce_add(Part::sums_of(dq, row + seen.tile(round) * Version::kQueries, number),
                        &shared.dq[number][0][0].x, Part::kPieceFloats * sizeof(float));
        tma_store_commit();
        tma_store_wait_read<0>();  // the part may be overwritten
        mbarrier_arrive(&shared.dq_empty[number]);
      }
    }
  }
}

//| ## The results of a consumer
//|
//| On a single rank dK and dV are final: both are rounded, and dK is multiplied by the scale of the scores. A
//| part is stored in float32 as it was summed; a quad's lanes hold 32 contiguous bytes of a row.
/// Where dK or dV of a tile of keys goes.
template <typename T>
struct KeyGradient {
  T* whole;     ///< [kv heads, seqlen_k, head_dim]; null: store a part
  float* part;  ///< same layout
};

/// Stores a consumer's sums of 64 keys. `key` is the thread's first; rows `key` and `key` + 8 are stored if
/// they are below seqlen_k. `offset` is the head's first element.
template <typename T, int kFloats>
__device__ __forceinline__ void store_gradient(const float (&sums)[kFloats], const KeyGradient<T>& to,
                                               int64_t offset, int key, int seqlen_k, float factor) {
  constexpr int kHeadDim = 2 * kFloats;
  if (to.part == nullptr) {
    store_from_registers(sums, to.whole + offset, kHeadDim, key, seqlen_k, factor);
    return;
  }
#pragma unroll
  for (int i = 0; i < kFloats; i += 2) {
    const int row = key + 8 * row_of(i);
    const int64_t at = offset + int64_t(row) * kHeadDim + i / 4 * 8 + 2 * int(threadIdx.x % 4);
    if (row < seqlen_k) *reinterpret_cast<float2*>(to.part + at) = make_float2(sums[i], sums[i + 1]);
  }
}

//| ## The kernel

/// Computes the gradients of the key tiles that this block takes, over the queries of one rank. Grid: as many
/// blocks as there are multiprocessors, or fewer.
template <typename T, typename Version>
__global__ void __launch_bounds__(Version::kThreads, 1)
    gradient(const __grid_constant__ CUtensorMap q_map,    // [heads, panels, seqlen_q, 64]
             const __grid_constant__ CUtensorMap k_map,    // [kv heads, panels, seqlen_k, 64]
             const __grid_constant__ CUtensorMap v_map,    // [kv heads, panels, seqlen_k, 64]
             const __grid_constant__ CUtensorMap do_map,   // [heads, panels, seqlen_q, 64]
             const __grid_constant__ CUtensorMap lse_map,  // [heads * padded_q], of the workspace
             const __grid_constant__ CUtensorMap d_map,    // [heads * padded_q], of the workspace
             KeyGradient<T> dk, KeyGradient<T> dv,         // [kv heads, seqlen_k, head_dim]
             float* dq,                                    // [heads * padded_q, head_dim], sums
             typename Version::Problem problem, TileOrder order,
             int* counter) {  // must be 0 at the start
  //| One warpgroup loads and issues additions, and releases most of its registers; two multiply. If consumers
  //| add to dQ themselves, its last two warps are idle.
  using Shared = BackwardShared<T, Version>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) initialise(shared, Version::kAddByTma ? kKeyConsumers : 0);
  __syncthreads();  // the barriers are ready

  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<Version::kProducerRegisters>();
    if (threadIdx.x == 0) produce_q<T, Version>(shared, q_map, lse_map, problem, order, counter);
    if (threadIdx.x == 32) produce_kv<T, Version>(shared, k_map, v_map, do_map, d_map, problem, order);
    if constexpr (Version::kAddByTma)
      if (threadIdx.x == 64 || threadIdx.x == 96) add_dq<T, Version>(shared, dq, problem, order, warp - 2);
    return;
  }

  //| A consumer takes a tile of keys, zeroes dK and dV, goes through the queries of all heads of the group,
  //| and stores.
  setmaxnreg_inc<Version::kConsumerRegisters>();
  const int number = warpgroup - 1;
  PipelineState<kBroadcastStages> next;
  PipelineState<Version::kStages> state;
  uint32_t parity = 0;
  for (;;) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int first_key = first_key_of<Version>(problem, order, work);
    const QueryTiles seen = queries_of<Version>(problem, work, first_key);
    Gradients<T, Version> gradients(shared, problem, first_key, number, warp);
    mbarrier_wait(&shared.keys_full, parity);
    parity ^= 1;
#pragma unroll 1
    for (int member = 0; member < problem.group; ++member) {
#pragma unroll 1
      for (int round = 0; round < seen.tiles(); ++round) {
        const int query = seen.tile(round) * Version::kQueries;
        //| dQ's address is needed only if consumers add to it.
        float* sums = nullptr;
        if constexpr (Version::kSums == Sums::keys_and_queries)
          sums = Gradients<T, Version>::Part::sums_of(
              dq, (work.head.head * problem.group + member) * problem.padded_q + query, number);
        gradients.step(state, first_key, query, sums);
      }
    }
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.keys_empty);
    const int64_t offset = int64_t(work.head.head) * problem.seqlen_k * Version::kHeadDim;
    const int key = first_key + number * kRowsPerWarpgroup + row_of_thread();
    if constexpr (Gradients<T, Version>::kHasDv)
      store_gradient(gradients.dv, dv, offset, key, problem.seqlen_k, 1.0f);
    if constexpr (Gradients<T, Version>::kHasDk)
      store_gradient(gradients.dk, dk, offset, key, problem.seqlen_k, problem.scale);
  }
}

}  // namespace flashbook::many_gpus
