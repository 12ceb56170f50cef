//| # One round of the loop
//|
//| A block keeps a tile of 128 keys. Its two warpgroups own 64 each and process the queries together, tile by
//| tile. A round issues, in this order:
//|
//| ![A round of two warpgroups as a timeline: five products, the exponential, dS through shared memory, dQ
//| handed over](../../docs/figures/backward_round.svg)
#pragma once
#include "chapters/07_backward/problem.cuh"
#include "common/hopper/gradient_round.h"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::backward {

//| Tiles, pipelines and the scheduler come from chapter 5. A round is built from
//| [`gradient_tiles.h`](../../common/hopper/gradient_tiles.h) and
//| [`gradient_round.h`](../../common/hopper/gradient_round.h).

/// Shared memory of a block.
template <typename T, typename Traits>
struct HopperShared : GradientShared<T, Traits, TileBroadcast> {
  uint64_t ds_full[2];  ///< kLateDq: both consumers have written their halves of this tile of dS
};

//| ## The queries of a tile of keys, and where to begin
//|
//| Under a causal mask a tile of keys is seen from its diagonal on, up to the last query, which sees every
//| key.
/// The tiles of queries that see some key of a tile of keys: the first, and the one after the last.
struct QueryTiles {
  int first, end;

  /// Returns the number of tiles.
  __device__ __forceinline__ int tiles() const { return end - first; }

  /// Returns the tile of a round. Rounds begin at tile `start` and wrap around after the last one.
  __device__ __forceinline__ int tile(int round, int start) const {
    const int at = start + round;
    return at < end ? at : at - tiles();
  }
};

/// Returns the tiles of kQueries queries that see a key from `first_key` on. The last query sees all keys, so
/// there is at least one tile.
template <int kQueries>
__device__ __forceinline__ QueryTiles queries_of(const Problem& problem, int first_key) {
  return {problem.first_query(first_key) / kQueries, ceil_div(problem.seqlen_q, kQueries)};
}

//| Without a mask every block of a head would begin with the same queries, and N / 128 blocks would add to
//| the same 32 KB of dQ at once. Additions to one place wait for each other. So each block begins where the
//| diagonal would be, and wraps around.
/// Returns where a block begins. Under a causal mask blocks begin apart anyway, and with ordered additions
/// their order determines it.
template <typename Traits>
__device__ __forceinline__ int start_of(const QueryTiles& tiles_seen, int first_key) {
  if constexpr (!Traits::kRotate) return tiles_seen.first;
  int start = first_key / Traits::kQueries;
#pragma unroll 1
  while (start >= tiles_seen.end) start -= tiles_seen.end;  // more keys than queries
  return start;
}

//| ## A consumer
//|
//| A thread keeps its share of everything in registers: dK and dV from the first tile of queries to the last,
//| scores and dP for half of a round, dQ for the other half.
/// A thread of a consumer, for one tile of keys.
template <typename T, typename Traits>
struct Gradients {
  static constexpr int kHeadDim = Traits::kHeadDim, kQueries = Traits::kQueries;
  static constexpr bool kHasDv = Traits::kSums != Sums::keys_and_queries;
  static constexpr bool kHasDk = Traits::kSums != Sums::values;
  static_assert(Traits::kStages > 1 || !kHasDv || !kHasDk,
                "dV still reads dO when the single stage of Q is released");
  using Part = DqPart<kHeadDim, kQueries>;
  static_assert(!kHasDk || Traits::kAddByTma || Traits::kStages == 1 || !Traits::kDeterministic,
                "with two stages only TMA adds in order");
  static_assert(Part::kPieces == 1 || !Traits::kAddByTma, "dQ has room for one piece");
  static_assert(!kHasDk || Part::kPieces == 1 || Traits::kStages == 1,
                "the rest of dQ is computed when dK is done");
  static_assert(!Traits::kLateDq || (Traits::kStages == 2 && Traits::kDsStages == 2 && !Traits::kAddByTma),
                "a place of dS for each stage, and registers that add");
  using Shared = HopperShared<T, Traits>;

  //| Registers per thread at d = 128 with 64 queries: 64 floats each for dK and dV, 32 each for scores and
  //| dP, and while dQ is computed another 32 for it, 16 for P and 16 for dS.
  Shared& shared;
  const Problem& problem;
  int number;          ///< index of this consumer
  const int warp_key;  ///< the warp's first key, counted from that of the tile
  float dk[kHasDk ? kHeadDim / 2 : 2], dv[kHasDv ? kHeadDim / 2 : 2];

  __device__ __forceinline__ Gradients(Shared& shared, const Problem& problem, int number, int warp)
      : shared(shared),
        problem(problem),
        number(number),
        warp_key(number * kRowsPerWarpgroup + warp % kWarpsPerWarpgroup * kRowsPerWarp) {
#pragma unroll
    for (float& sum : dk) sum = 0.0f;
#pragma unroll
    for (float& sum : dv) sum = 0.0f;
  }

  //| ### The mask
  //|
  //| The mask is that of chapter 5, transposed: rows are keys, so each of a thread's two rows has a first
  //| query that sees it, and columns before it are hidden. Keys past the end are hidden from all queries. TMA
  //| fills them with zeros, so their score is 0 and their P is exp(-log-sum-exp). That may seem harmless,
  //| since their K is zero too, and their own gradients are not stored. But for a log-sum-exp below -88 it is
  //| infinite, and infinity times zero is NaN.
  /// Scores of keys that a query does not see become -inf. `first_key` and `first_query` begin the tile.
  __device__ __forceinline__ void mask(float (&scores)[kQueries / 2], int first_key, int first_query) const {
    const int key = first_key + warp_key + threadIdx.x % 32 / 4;
    const int thread_query = first_query + 2 * int(threadIdx.x % 4);
    int limit[2];  // the first query that sees the key, relative to thread_query
#pragma unroll
    for (int r = 0; r < 2; ++r)
      limit[r] = key + 8 * r < problem.seqlen_k ? problem.first_query(key + 8 * r) - thread_query : kQueries;
#pragma unroll
    for (int i = 0; i < kQueries / 2; ++i)
      if (i / 4 * 8 + i % 2 < limit[i / 2 % 2]) scores[i] = -INFINITY;
  }

  //| ### The round
  /// Processes a query tile. `sums` is where this warpgroup's part of dQ is added, if registers add it: this
  /// tile's, or with kLateDq the previous round's. kHasBefore: there is one.
  template <bool kHasBefore = false>
  __device__ __forceinline__ void step(PipelineState<Traits::kStages>& state, int first_key, int first_query,
                                       float* sums) {
    //| The order of issue is the point of this function. The tensor cores work through groups in order, and
    //| the waits name the oldest groups that must be done. Everything between an issue and its wait overlaps
    //| with the products.
    constexpr uint32_t kWarpgroupRows = kRowsPerWarpgroup * kPanelRowBytes;
    const uint64_t own_k = wgmma_advance(k_major(shared.k), number * kWarpgroupRows);
    float scores[kQueries / 2], dp[kQueries / 2];
    Fragments<kQueries> p, ds;

    //| Both S^T and dP^T are issued before the first wait. While dP^T is computed, S^T becomes P^T.
    wait_full(shared.q, state);
    wgmma_fence();
    issue_scores<T, kHeadDim, kTileKeys>(scores, own_k, k_major(shared.q.tile[state.stage]));
    wait_full(shared.d_o, state);
    if constexpr (kHasDk) {
      const uint64_t own_v = wgmma_advance(k_major(shared.v), number * kWarpgroupRows);
      wgmma_fence();
      issue_scores<T, kHeadDim, kTileKeys>(dp, own_v, k_major(shared.d_o.tile[state.stage]));
      wgmma_wait<1>();  // S^T is done; dP^T still runs
    } else {
      wgmma_wait<0>();
    }
    wgmma_pin(scores);
    //| Only tiles on the diagonal and the last tile of keys are masked. The branch is uniform across a
    //| warpgroup.
    if (first_key + number * kRowsPerWarpgroup + kRowsPerWarpgroup - 1 > problem.last_key(first_query))
      mask(scores, first_key, first_query);
    to_probabilities(scores, shared.lse[state.stage], problem.scale_log2);
    if constexpr (kHasDv) round_to_fragments<T>(p, scores);

    if constexpr (kHasDk) {
      //| dP^T was computed during the exponentials. Now P and dP turn into dS, and their registers become
      //| free for dQ.
      wgmma_wait<0>();
      wgmma_pin(dp);
      to_ds(scores, dp, shared.d[state.stage]);
      round_to_fragments<T>(ds, scores);
    }

    //| P^T needs nothing from the other warpgroup, so dV is issued before the barrier at which the two wait
    //| for each other.
    if constexpr (kHasDv) {
      wgmma_pin(dv);
      wgmma_pin(p);
      wgmma_fence();
      issue_accumulate<T>(dv, p, mn_major(shared.d_o.tile[state.stage]));
    }
    if constexpr (!kHasDk) {
      finish_values(shared, state, dv, p);
    } else if constexpr (Traits::kLateDq) {
      finish_late<kHasBefore>(state, p, ds, sums);
    } else {
      //| dS^T is a register operand, too. With a single stage, dK is issued first and runs while both wait
      //| for dS.
      const uint64_t q_columns = mn_major(shared.q.tile[state.stage]);
      if constexpr (Traits::kStages == 1) {
        __syncwarp();  // all lanes have read D, before lane 0 releases it
        release(shared.d_o, state);
        wgmma_pin(dk);
        wgmma_pin(ds);
        wgmma_fence();
        issue_accumulate<T>(dk, ds, q_columns);
      }
      //| With one buffer for dS, the other warpgroup may still be reading what would be overwritten. With
      //| two, the previous round's barrier rules that out.
      if constexpr (Traits::kDsStages == 1) named_barrier_sync<kDsRead, kKeyConsumerThreads>();
      auto& ds_tile = shared.ds[state.stage % Traits::kDsStages];
      store_transposed_to_smem(ds_tile, ds, warp_key);
      named_barrier_sync<kDsWritten, kKeyConsumerThreads>();  // both halves of dS have been written
      const uint64_t ds_rows = k_major(ds_tile), k_columns = mn_major(shared.k);
      wgmma_fence();
      if constexpr (Traits::kStages == 1) {
        finish_keys_and_queries<T, Traits>(shared, state, dk, ds, ds_rows, k_columns, sums, number);
      } else {
        //| dQ is issued before dK, so that dK runs while dQ is handed over.
        wgmma_pin(dk);
        wgmma_pin(ds);
        float dq[Part::kFloats];
        issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, ds_rows, k_columns, number, 0);
        issue_accumulate<T>(dk, ds, q_columns);
        wgmma_wait<1>();  // dV and dQ are done; dK still runs
        if constexpr (kHasDv) {
          wgmma_pin(dv);
          wgmma_pin(p);
        }
        wgmma_pin(dq);
        release(shared.d_o, state);
        //| dQ is done, and dK still runs. Each thread sends 32 floats to shared memory, or to the L2.
        if constexpr (Traits::kAddByTma)
          hand_over(shared, dq, number, state.stage);  // with two stages, the stage is the parity
        else
          add_from_registers(dq, sums);
        wgmma_wait<0>();
        wgmma_pin(dk);
        wgmma_pin(ds);
        release(shared.q, state);
      }
    }
    state.advance();
  }

  //| ### Late dQ
  //|
  //| The barrier in the middle of a round keeps both warpgroups in lockstep: both compute exponentials while
  //| the tensor cores idle, then both wait for products. But nothing requires this round to compute its own
  //| dQ. With two buffers for dS, a warpgroup can compute dQ of the *previous* round. It then waits, at one
  //| mbarrier per buffer, for data that both wrote a whole round ago. So they may drift apart by up to a
  //| round, and one multiplies while the other computes its exponentials.
  //|
  //| | barrier | who arrives | arrivals of a phase | who waits | first wait |
  //| | --- | --- | --- | --- | --- |
  //| | `ds_full[place]` | the warps of both consumers, when they have written their part of dS | 8 | both consumers, a round later | parity 0 |
  //|
  //| There is no barrier for an *empty* buffer. A warpgroup overwrites the buffer of two rounds ago. By then
  //| it has waited for the dS of the previous round, and a warp arrives there only after it has finished dQ
  //| of the round before.
  /// Ends a round: dQ of the previous round, if there is one, and dK.
  template <bool kHasBefore>
  __device__ __forceinline__ void finish_late(const PipelineState<Traits::kStages>& state,
                                              Fragments<kQueries>& p, Fragments<kQueries>& ds, float* sums) {
    float dq[Part::kFloats];
    if constexpr (kHasBefore) wait_for_ds_before(state);
    wgmma_pin(dk);
    wgmma_pin(ds);
    wgmma_fence();
    if constexpr (kHasBefore) issue_dq_before(state, dq);
    store_transposed_to_smem(shared.ds[state.stage], ds, warp_key);
    issue_accumulate<T>(dk, ds, mn_major(shared.q.tile[state.stage]));
    //| A warp arrives at `ds_full` only once the previous dQ is done, so the dS that it reads stays intact.
    wgmma_wait<1>();  // dV is done, and dQ of the previous round; dK still runs
    wgmma_pin(dv);
    wgmma_pin(p);
    if constexpr (kHasBefore) wgmma_pin(dq);
    __syncwarp();  // all lanes have read D and written their dS
    release(shared.d_o, state);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.ds_full[state.stage]);
    if constexpr (kHasBefore) add_from_registers(dq, sums);
    wgmma_wait<0>();
    wgmma_pin(dk);
    wgmma_pin(ds);
    release(shared.q, state);
  }

  //| The stages of Q and the buffers of dS alternate together. So the previous round used the other buffer,
  //| and its phase is that of this round, or the preceding one at buffer 0.
  /// Waits until both consumers have written dS in the round before that of `state`.
  __device__ __forceinline__ void wait_for_ds_before(const PipelineState<Traits::kStages>& state) const {
    mbarrier_wait(&shared.ds_full[state.stage ^ 1], state.stage == 0 ? state.phase ^ 1 : state.phase);
  }

  /// Issues this warpgroup's part of dQ of the round that precedes that of `state`.
  __device__ __forceinline__ void issue_dq_before(const PipelineState<Traits::kStages>& state,
                                                  float (&dq)[Part::kFloats]) const {
    issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, k_major(shared.ds[state.stage ^ 1]), mn_major(shared.k),
                                               number, 0);
  }

  //| After the last round of a tile of keys, no round is left to compute its dQ, and K will be overwritten.
  /// Computes the last dQ of a key tile, after its last round. `state` is one past it.
  __device__ __forceinline__ void finish_last(const PipelineState<Traits::kStages>& state,
                                              float* sums) const {
    float dq[Part::kFloats];
    wait_for_ds_before(state);
    wgmma_fence();
    issue_dq_before(state, dq);
    wgmma_wait<0>();
    wgmma_pin(dq);
    add_from_registers(dq, sums);
  }
};

}  // namespace flashbook::backward
