//| # One round of the loop
//|
//| A block keeps a tile of 128 keys. Its two warpgroups own 64 of them each and go through the queries together, tile after
//| tile. What a round does, in the order of issue:
//|
//| ![A round of two warpgroups as a timeline: five products, the exponential, dS through shared memory, dQ handed over](../../docs/figures/backward_round.svg)
#pragma once
#include <type_traits>

#include "chapters/07_backward/hopper_tiles.cuh"
#include "common/hopper/pipeline.h"
#include "common/hopper/tile_scheduler.h"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/math.h"

namespace flashbook::backward {

//| The pipeline and the hand-out of tiles are chapter 5's, from `common/hopper`.
using hopper::kBroadcastStages;
using hopper::Pipeline;
using hopper::PipelineState;
using hopper::release;
using hopper::Schedule;
using hopper::TileBroadcast;
using hopper::TileOrder;
using hopper::wait_empty;
using hopper::wait_full;
using hopper::WorkTile;

//| ## What a block sums
//|
//| Up to d = 128 a block sums all gradients of its keys. dK and dV of 128 keys are then 128 floats a thread at d = 128.
//| At d = 256 they would be 256, more than there are registers. FlashAttention-3 takes tiles of 80 keys there, and adds
//| dQ 1.6 times as often as with 128: its d = 256 is bound by those additions. Here two kinds of blocks share the work
//| instead. One computes dV: S and dV, two products. The other dK and dQ: S, dP, dK and dQ, four. That is six products
//| where five are counted, but key tiles stay 128 wide, and dQ is added up as seldom as at d = 128.
/// The gradients that a block sums.
enum class Sums {
  all,              ///< dV, dK, dQ: five products
  values,           ///< dV: S and dV
  keys_and_queries  ///< dK and dQ: S, dP, dK and dQ
};

constexpr int kConsumers = 2;                         ///< warpgroups that multiply
constexpr int kKeys = kConsumers * kRowsOfWarpgroup;  ///< of a tile
constexpr int kConsumerThreads = kConsumers * kWarpgroup;

//| Two named barriers join the consumers. Everything else goes by mbarriers.
/// What the block's named barriers are for.
enum NamedBarrier {
  kWholeBlock,  ///< __syncthreads
  kDsWritten,   ///< both warpgroups have laid down their dS
  kDsRead       ///< and dQ of the round before has been computed from it
};

/// Takes the place of what a version does not need.
struct Nothing {};

//| ## Shared memory
//|
//| At d = 128: K and V 64 KB, two stages of Q and of dO with 64 queries 64 KB, two tiles of dS 32 KB, dQ as floats 32 KB,
//| together 192 KB. With 128 queries it would be 320. At d = 64 a tile has 128 queries, and the sum is the same but for K
//| and V. At d = 256 dK's kind of block has 128 KB of K and V, one stage of Q and dO, one tile of dS, and no dQ.
/// Shared memory of a block.
template <typename T, typename Config>
struct HopperShared {
  static constexpr int kHeadDim = Config::kHeadDim, kQueries = Config::kQueries;
  using Keys = Tile<T, kKeys, kHeadDim>;
  using Queries = Tile<T, kQueries, kHeadDim>;
  static constexpr bool kHasDp = Config::kSums != Sums::values;
  using DsTiles = Tile<T, kQueries, kKeys>[Config::kDsStages];
  using DqParts = float4[kConsumers][DqPart<kHeadDim, kQueries>::kFloats / 4][kWarpgroup];  // one piece each

  Keys k;
  std::conditional_t<kHasDp, Keys, Nothing> v;
  Pipeline<Queries, Config::kStages> q;
  Pipeline<Queries, Config::kStages> d_o;
  std::conditional_t<kHasDp, DsTiles, Nothing> ds;
  std::conditional_t<Config::kAddByTma, DqParts, Nothing> dq;
  alignas(128) float lse[Config::kStages][kQueries];  // of the rows of q, as the workspace has it
  alignas(128) float d[Config::kStages][kQueries];    // of the rows of d_o
  TileBroadcast broadcast;
  uint64_t keys_full, keys_empty;
  uint64_t dq_full[kConsumers], dq_empty[kConsumers];
};

//| ## Which queries, and where to begin
//|
//| Under a causal mask a tile of keys is seen from its diagonal on, up to the last query, which sees every key.
/// The tiles of queries that see something of a tile of keys: first, and the one after the last.
struct Visit {
  int first, end;

  /// How many they are.
  __device__ __forceinline__ int tiles() const { return end - first; }

  /// The tile of a round. Rounds begin at tile `start` and go on at the first one after the last.
  __device__ __forceinline__ int tile(int round, int start) const {
    const int at = start + round;
    return at < end ? at : at - tiles();
  }
};

/// Which tiles of kQueries queries see a key from `first_key` on. The last query does, so there is one at
/// least.
template <int kQueries>
__device__ __forceinline__ Visit queries_of(const Problem& problem, int first_key) {
  return {problem.first_query(first_key) / kQueries, (problem.seqlen_q + kQueries - 1) / kQueries};
}

//| Without a mask every block of a head would begin with the same queries, and a hundred blocks would add to the same 32
//| KB of dQ. So each begins where the diagonal would be, and goes round.
/// Where a block begins. Blocks that keep tiles of the same head's keys would all add to the same tile of dQ
/// at once, and additions to one place wait for each other; so each begins elsewhere. Under a causal mask the
/// diagonal sees to that, and where additions have an order, their order does.
template <typename Config>
__device__ __forceinline__ int start_of(const Visit& visit, int first_key) {
  if constexpr (!Config::kRotate) return visit.first;
  int start = first_key / Config::kQueries;
#pragma unroll 1
  while (start >= visit.end) start -= visit.end;  // more keys than queries
  return start;
}

//| ## A consumer
//|
//| A thread's share of everything is in registers: dK and dV stay from the first tile of queries to the last, scores and
//| dP live for half a round, dQ for the other half.
/// A thread of a consumer, for one tile of keys.
template <typename T, typename Config>
struct Gradients {
  static constexpr int kHeadDim = Config::kHeadDim, kQueries = Config::kQueries;
  static constexpr bool kHasDv = Config::kSums != Sums::keys_and_queries;
  static constexpr bool kHasDk = Config::kSums != Sums::values;
  static_assert(Config::kStages > 1 || !kHasDv || !kHasDk,
                "dV still reads dO where one stage of Q gives it back");
  using Part = DqPart<kHeadDim, kQueries>;
  static_assert(!kHasDk || Config::kAddByTma || Config::kStages == 1 || !Config::kDeterministic,
                "with two stages nobody but TMA adds in order");
  static_assert(Part::kPieces == 1 || !Config::kAddByTma, "dQ has room for one piece");
  static_assert(!kHasDk || Part::kPieces == 1 || Config::kStages == 1,
                "the rest of dQ is computed when dK is done");
  using Shared = HopperShared<T, Config>;

  //| Registers of a thread at d = 128, 64 queries: dK and dV 64 floats each, scores 32, dP 32, and while dQ is computed
  //| 32 for it, 16 for P and 16 for dS.
  Shared& shared;
  const Problem& problem;
  int number;          ///< which consumer this is
  const int warp_key;  ///< the warp's first key, counted from the tile's
  float dk[kHasDk ? kHeadDim / 2 : 2], dv[kHasDv ? kHeadDim / 2 : 2];

  __device__ __forceinline__ Gradients(Shared& shared, const Problem& problem, int number, int warp)
      : shared(shared),
        problem(problem),
        number(number),
        warp_key(number * kRowsOfWarpgroup + warp % kWarpsOfWarpgroup * kRowsOfWarp) {
#pragma unroll
    for (float& sum : dk) sum = 0.0f;
#pragma unroll
    for (float& sum : dv) sum = 0.0f;
  }

  //| ### P
  //|
  //| There is no maximum to find and no sum to divide by: forward's log-sum-exp has both, and P comes out right at once. In
  //| S^T a query is a column, so a thread needs the log-sum-exp of its columns, two of every eight, and reads them from
  //| shared memory. Rows beyond the end, and rows that see nothing, have +inf there, and their P is 0.
  //| The mask is that of chapter 5, transposed: rows are keys, so each of a thread's two rows has a first query
  //| that sees it, and columns before it are hidden. Keys beyond the end are hidden from everybody. TMA brings zeros for
  //| them, so their score is 0 and their P is exp(-log-sum-exp). That seems to do no harm, since their K is zero too, and
  //| their own gradients are not stored. But of a log-sum-exp below -88 it is infinite, and infinity times zero is NaN.
  /// Scores of keys that a query does not see become -inf. `first_key` and `first_query` are the tile's.
  __device__ __forceinline__ void mask(float (&scores)[kQueries / 2], int first_key, int first_query) const {
    const int key = first_key + warp_key + threadIdx.x % 32 / 4;
    const int thread_query = first_query + 2 * int(threadIdx.x % 4);
    int limit[2];  // the first query, counted from thread_query, that sees the key
#pragma unroll
    for (int r = 0; r < 2; ++r)
      limit[r] = key + 8 * r < problem.seqlen_k ? problem.first_query(key + 8 * r) - thread_query : kQueries;
#pragma unroll
    for (int i = 0; i < kQueries / 2; ++i)
      if (i / 4 * 8 + i % 2 < limit[i / 2 % 2]) scores[i] = -INFINITY;
  }

  /// scores = P^T, in place.
  __device__ __forceinline__ void to_probabilities(float (&scores)[kQueries / 2], int stage) const {
    const auto* lse = reinterpret_cast<const float2*>(shared.lse[stage]) + threadIdx.x % 4;
#pragma unroll
    for (int group = 0; group < kQueries / 8; ++group) {
      const float2 of_column = lse[4 * group];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[4 * group + i] = exp2_approx(problem.scale_log2 * scores[4 * group + i] -
                                            (i % 2 == 0 ? of_column.x : of_column.y));
    }
  }

  //| ### dS
  //|
  //| dS = P * (dP - D), an element at a time, with D by column like the log-sum-exp. It is rounded at once: as left
  //| operand of dK it stays in registers, for dQ it goes through shared memory.
  /// scores = dS^T, from P^T.
  __device__ __forceinline__ void to_ds(float (&scores)[kQueries / 2], const float (&dp)[kQueries / 2],
                                        int stage) const {
    const auto* d = reinterpret_cast<const float2*>(shared.d[stage]) + threadIdx.x % 4;
#pragma unroll
    for (int group = 0; group < kQueries / 8; ++group) {
      const float2 of_column = d[4 * group];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[4 * group + i] *= dp[4 * group + i] - (i % 2 == 0 ? of_column.x : of_column.y);
    }
  }

  //| ### dQ
  //|
  //| What a thread has of dQ goes to memory as it is, in the order of registers: thread t's four floats stand beside thread
  //| t + 1's. So 32 lanes write 512 bytes side by side, whether into shared memory or into the L2. Nobody but
  //| `convert_dq` reads those sums, and it knows the order.
  /// Where a warpgroup's part of dQ of the tile at a row of the workspace is summed.
  static __device__ __forceinline__ float* part_of(float* dq, int row, int number) {
    return dq + int64_t(row) * kHeadDim + number * Part::kPieces * Part::kPieceFloats;
  }

  __device__ __forceinline__ void add_from_registers(float (&dq)[Part::kFloats], float* sums) const {
    auto* to = reinterpret_cast<float4*>(sums) + threadIdx.x % kWarpgroup;
#pragma unroll
    for (int i = 0; i < Part::kFloats; i += 4)
      red_add(to + i / 4 * kWarpgroup, make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]));
  }

  /// Hands dQ to the warp that adds.
  __device__ __forceinline__ void hand_over(float (&dq)[Part::kFloats], uint32_t parity) const {
    mbarrier_wait(&shared.dq_empty[number], parity ^ 1);  // TMA has read the part before
    auto* to = &shared.dq[number][0][threadIdx.x % kWarpgroup];
#pragma unroll
    for (int i = 0; i < Part::kFloats; i += 4)
      to[i / 4 * kWarpgroup] = make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
    fence_proxy_async();  // this thread's writes become visible to TMA
    __syncwarp();         // all lanes have written
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full[number]);
  }

  //| ### The round
  /// One tile of queries. `sums` is where this warpgroup's part of its dQ is added, if registers add it.
  __device__ __forceinline__ void step(PipelineState<Config::kStages>& state, int first_key, int first_query,
                                       float* sums) {
    //| The order of issue is the point of this function. The tensor cores work through groups in order; the waits name
    //| the oldest groups that must be done. What stands between an issue and its wait runs beside the products.
    constexpr uint32_t kWarpgroupRows = kRowsOfWarpgroup * kPanelRowBytes;
    const uint64_t own_k = wgmma_advance(k_major(shared.k), number * kWarpgroupRows);
    float scores[kQueries / 2], dp[kQueries / 2];
    Fragments<kQueries> p, ds;

    //| S^T and dP^T are issued before either is waited for. While dP^T is multiplied, S^T becomes P^T.
    wait_full(shared.q, state);
    wgmma_fence();
    issue_scores<T, kHeadDim, kKeys, kQueries>(scores, own_k, k_major(shared.q.tile[state.stage]));
    wait_full(shared.d_o, state);
    if constexpr (kHasDk) {
      const uint64_t own_v = wgmma_advance(k_major(shared.v), number * kWarpgroupRows);
      wgmma_fence();
      issue_scores<T, kHeadDim, kKeys, kQueries>(dp, own_v, k_major(shared.d_o.tile[state.stage]));
      wgmma_wait<1>();  // S^T is there; dP^T still runs
    } else {
      wgmma_wait<0>();
    }
    wgmma_pin(scores);
    //| Only tiles on the diagonal and the last tile of keys ask for the mask: a branch that is the same for a whole
    //| warpgroup.
    if (first_key + number * kRowsOfWarpgroup + kRowsOfWarpgroup - 1 > problem.last_key(first_query))
      mask(scores, first_key, first_query);
    to_probabilities(scores, state.stage);
    if constexpr (kHasDv) round_to_fragments<T>(p, scores);

    if constexpr (kHasDk) {
      //| dP^T was multiplied beside the exponentials. Now S and dP turn into dS, and their registers become free for dQ.
      wgmma_wait<0>();
      wgmma_pin(dp);
      to_ds(scores, dp, state.stage);
      round_to_fragments<T>(ds, scores);
    }

    //| P^T needs nothing of the other warpgroup, so dV is issued before the barrier at which the two wait for each other.
    if constexpr (kHasDv) {
      wgmma_pin(dv);
      wgmma_pin(p);
      wgmma_fence();
      issue_sum<T, kHeadDim>(dv, p, mn_major(shared.d_o.tile[state.stage]));
    }
    if constexpr (kHasDk) {
      //| With one stage of dS, the other warpgroup may still be reading what it would overwrite. With two, the barrier of
      //| the round before has made sure that it is not.
      if constexpr (Config::kDsStages == 1) named_barrier_sync<kDsRead, kConsumerThreads>();
      auto& ds_tile = shared.ds[state.stage % Config::kDsStages];
      lay_down(ds_tile, ds, warp_key);
      named_barrier_sync<kDsWritten, kConsumerThreads>();  // both halves of dS are there

      float dq[Part::kFloats];
      const uint64_t ds_rows = k_major(ds_tile), k_columns = mn_major(shared.k);
      const uint64_t q_columns = mn_major(shared.q.tile[state.stage]);
      wgmma_pin(dk);
      wgmma_pin(ds);
      wgmma_fence();
      //| dQ before dK, so that dK runs while dQ is handed over. With one stage of Q it is dK first: the next Q is on its way
      //| while dQ is computed.
      if constexpr (Config::kStages > 1) {
        issue_dq<T, kHeadDim, kKeys, kQueries>(dq, ds_rows, k_columns, number, 0);
        issue_sum<T, kHeadDim>(dk, ds, q_columns);
        wgmma_wait<1>();  // dV and dQ are there; dK still runs
        if constexpr (kHasDv) {
          wgmma_pin(dv);
          wgmma_pin(p);
        }
        wgmma_pin(dq);
        release(shared.d_o, state);
        //| dQ is there, and dK still runs. 32 floats a thread leave for shared memory, or for the L2.
        if constexpr (Config::kAddByTma)
          hand_over(dq, state.stage);  // of two stages: 0 and 1 in turn, as the parity
        else
          add_from_registers(dq, sums);
        wgmma_wait<0>();
        wgmma_pin(dk);
        wgmma_pin(ds);
        release(shared.q, state);
      } else {
        //| The block of d = 256 that has no dV: dO is free since dP, and Q is given back before dQ is waited for. The
        //| second piece of dQ follows when the first has left.
        release(shared.d_o, state);
        issue_sum<T, kHeadDim>(dk, ds, q_columns);
        issue_dq<T, kHeadDim, kKeys, kQueries>(dq, ds_rows, k_columns, number, 0);
        wgmma_wait<1>();
        wgmma_pin(dk);
        wgmma_pin(ds);
        release(shared.q, state);
        wgmma_wait<0>();
        wgmma_pin(dq);
        if constexpr (Config::kDeterministic) mbarrier_wait(&shared.dq_empty[number], state.phase);
        add_from_registers(dq, sums);
        //| The other pieces take the same registers, one after another.
#pragma unroll
        for (int piece = 1; piece < Part::kPieces; ++piece) {
          wgmma_pin(dq);
          wgmma_fence();
          issue_dq<T, kHeadDim, kKeys, kQueries>(dq, ds_rows, k_columns, number, piece);
          wgmma_wait<0>();
          wgmma_pin(dq);
          add_from_registers(dq, sums + piece * Part::kPieceFloats);
        }
        if constexpr (Config::kDeterministic) {
          __syncwarp();  // all lanes have added
          if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full[number]);
        }
      }
    } else {
      //| A block that sums dV alone has two products a round. Q is free as soon as S^T is done.
      __syncwarp();  // all lanes have read the log-sum-exp, and S^T is done
      release(shared.q, state);
      wgmma_wait<0>();
      wgmma_pin(dv);
      wgmma_pin(p);
      release(shared.d_o, state);
    }
    state.advance();
  }
};

//| ## From sums to results
//|
//| dK and dV leave from the registers, rounded. A lane holds two neighbouring columns of every eight; the four lanes of a
//| quad exchange, so that each stores 16 bytes side by side (chapter 5's epilogue has the picture).

/// Transposes the quad's 4 x 4 matrix of words: word i of lane j and word j of lane i change places.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&word)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      // Of words i and i + bit, a lane with the bit set gives away the first, one without it the second.
      const uint32_t other = __shfl_xor_sync(kWholeWarp, lane & bit ? word[i] : word[i + bit], bit);
      word[i] = lane & bit ? other : word[i];
      word[i + bit] = lane & bit ? word[i + bit] : other;
    }
}

//| dK gets its factor here: the scale of the scores, which all of the loop has left out.
/// Stores factor * sums, a thread's part of 64 rows of kColumns columns, rounded to T. `to` is row 0, of
/// which rows from `valid` on are left out.
template <typename T, int kColumns>
__device__ __forceinline__ void store_rows(const float (&sums)[kColumns / 2], float factor,
                                           T* to,  // [64, kColumns], rows `stride` elements apart
                                           int64_t stride, int valid) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = threadIdx.x / 32 % kWarpsOfWarpgroup * kRowsOfWarp + threadIdx.x % 32 / 4 + 8 * r;
    auto* target = reinterpret_cast<uint4*>(to + row * stride) + threadIdx.x % 4;
#pragma unroll
    for (int column = 0; column < kColumns; column += 32) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = column / 2 + 4 * i + 2 * r;
        word[i] = pack<T>(factor * sums[at], factor * sums[at + 1]);
      }
      transpose_in_quad(word);  // all lanes, also those of rows beyond the end
      if (row < valid) target[column / 8] = make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

}  // namespace flashbook::backward
