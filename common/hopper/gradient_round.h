//| # The parts of an iteration of the gradient
//|
//| A block keeps a tile of 128 keys. Its two warpgroups own 64 keys each and loop over the queries together,
//| one tile per iteration. Chapter 7's loop is in
//| [`hopper_gradients.cuh`](../../chapters/07_backward/hopper_gradients.cuh), and the chapter on masks has
//| its own. This file contains the parts that both use.
//|
//| ![A round of two warpgroups as a timeline: five products, the exponential, dS through shared memory, dQ
//| handed over](../../docs/figures/backward_round.svg)
#pragma once
#include <type_traits>

#include "common/hopper/block.h"
#include "common/hopper/epilogue.h"
#include "common/hopper/gradient_tiles.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/softmax.h"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/math.h"

namespace flashbook::hopper {

//| ## What a block sums
//|
//| Up to d = 128, a block sums all gradients of its keys. At d = 128, dK and dV of 128 keys are 128 floats
//| per thread. At d = 256 they would be 256, more than there are registers. FlashAttention-3 uses tiles of 80
//| keys there, and adds to dQ 1.6 times as often as with 128: its d = 256 is bound by those additions. Here,
//| two kinds of blocks share the work instead. One computes dV, with two products: S and dV. The other
//| computes dK and dQ, with four: S, dP, dK and dQ. That is six products where five are counted, but key
//| tiles stay 128 wide, and additions to dQ are as rare as at d = 128.
/// The gradients that a block sums.
enum class Sums {
  all,              ///< dV, dK, dQ: five products
  values,           ///< dV: S and dV
  keys_and_queries  ///< dK and dQ: S, dP, dK and dQ
};

constexpr int kKeyConsumers = 2;                              ///< warpgroups that multiply
constexpr int kTileKeys = kKeyConsumers * kRowsPerWarpgroup;  ///< keys per tile, at every head dimension
constexpr int kKeyConsumerThreads = kKeyConsumers * kWarpgroup;

//| Two named barriers synchronise the consumers. Everything else uses mbarriers.
/// The uses of the block's named barriers. Barrier 0 is __syncthreads.
enum GradientBarrier {
  kDsWritten = 1,  ///< both warpgroups have stored their dS
  kDsRead          ///< the previous iteration's dQ, which reads dS, has been computed
};

//| ## Shared memory
//|
//| At d = 128, K and V take 64 KB, two stages of Q and dO with 64 queries 64 KB, two tiles of dS 32 KB, and
//| dQ as floats 32 KB: 192 KB in total. With 128 queries it would be 320. At d = 64 a tile has 128 queries,
//| and the total is the same except for K and V. At d = 256 the kind of block that sums dK has 128 KB of K
//| and V, one stage of Q and dO, one tile of dS, and no dQ.

/// Whether a version has its own number of stages of dO.
template <typename Traits>
concept HasDoStages = requires(const Traits& traits) {
  traits.kDoStages;
};

/// The stages of dO: as many as those of Q, unless the version says otherwise.
template <typename Traits>
constexpr int kDoStages = [] {
  if constexpr (HasDoStages<Traits>)
    return Traits::kDoStages;
  else
    return Traits::kStages;
}();

/// The shared memory of a block. `Broadcast` tells its warps which tile of keys is next.
template <typename T, typename Traits, typename Broadcast>
struct GradientShared {
  static constexpr int kHeadDim = Traits::kHeadDim, kQueries = Traits::kQueries;
  static constexpr bool kHasDp = Traits::kSums != Sums::values;
  using Keys = Tile<T, kTileKeys, KeyColumns<kHeadDim>::kPanels * kPanel>;
  using Values = Tile<T, kTileKeys, Traits::kValueDim>;
  using Queries = Tile<T, kQueries, kHeadDim>;
  using OutputGradients = Tile<T, kQueries, Traits::kValueDim>;
  static constexpr uint32_t kKeyBytes = Keys::kBytes + (kHasDp ? Values::kBytes : 0);  ///< of keys and values
  using DsTiles = Tile<T, kQueries, kTileKeys>[Traits::kDsStages];
  using DqParts =
      float4[kKeyConsumers][DqPart<kHeadDim, kQueries>::kFloats / 4][kWarpgroup];  // one piece each

  Keys k;
  std::conditional_t<kHasDp, Values, Nothing> v;
  Pipeline<Queries, Traits::kStages> q;
  Pipeline<OutputGradients, kDoStages<Traits>> d_o;
  std::conditional_t<kHasDp, DsTiles, Nothing> ds;
  std::conditional_t<Traits::kAddByTma, DqParts, Nothing> dq;
  alignas(128) float lse[Traits::kStages][kQueries];  // log-sum-exps of q's rows, copied from the workspace
  alignas(128) float d[kDoStages<Traits>][kQueries];  // D of d_o's rows
  Broadcast broadcast;
  uint64_t keys_full, keys_empty;
  uint64_t dq_full[kKeyConsumers], dq_empty[kKeyConsumers];
};

//| Counts of arrivals are 1 for a thread with TMA, 4 for a consumer's warps, and 8 for both consumers. Each
//| consumer's dQ goes the other way: four warps fill, one thread empties. The broadcast is read by the eight
//| consumer warps, the thread that loads K, V and dO, and the `adders`, threads that add dQ.
/// Initialises the barriers of a block with roles. One thread calls it, before the first __syncthreads.
template <typename T, typename Traits, typename Broadcast>
__device__ __forceinline__ void initialise(GradientShared<T, Traits, Broadcast>& shared, int adders) {
  constexpr int kConsumerWarps = kKeyConsumers * kWarpsPerWarpgroup;
  initialise(shared.q, 1, kConsumerWarps, "q full", "q empty");
  initialise(shared.d_o, 1, kConsumerWarps, "do full", "do empty");
  initialise(shared.broadcast, kConsumerWarps + 1 + adders);
  mbarrier_init(&shared.keys_full, 1);
  name_mbarrier(&shared.keys_full, "keys full");
  mbarrier_init(&shared.keys_empty, kConsumerWarps);
  name_mbarrier(&shared.keys_empty, "keys empty");
  for (int i = 0; i < kKeyConsumers; ++i) {
    mbarrier_init(&shared.dq_full[i], kWarpsPerWarpgroup);
    name_mbarrier(&shared.dq_full[i], "dq full", i);
    mbarrier_init(&shared.dq_empty[i], 1);
    name_mbarrier(&shared.dq_empty[i], "dq empty", i);
  }
  fence_mbarrier_init();
}

//| The log-sum-exp of a tile's rows comes with its stage of Q, and D with its stage of dO. Both copies use
//| one mbarrier, so a consumer waits once. The small copies use a one-dimensional tensor map: a coordinate is
//| one register, where a pointer is two, and producers have few.
/// Loads a tile of queries, and the workspace's numbers for its rows. The stage must be empty.
template <typename Queries, int kStages, int kQueries, typename Map>
__device__ __forceinline__ void fill_queries(Pipeline<Queries, kStages>& pipeline,
                                             PipelineState<kStages>& state,
                                             float (&row_values)[kStages][kQueries], const Map& map,
                                             const CUtensorMap& row_map, int first_query, const Head& head,
                                             int workspace_row) {
  uint64_t* const full = &pipeline.full[state.stage];
  mbarrier_arrive_expect_tx(full, Queries::kBytes + sizeof(row_values[0]));
  load(pipeline.tile[state.stage], map, full, first_query, head);
  tma_load(row_values[state.stage], row_map, full, {workspace_row});
  state.advance();
}

//| ## P
//|
//| There is no maximum to find and no sum to divide by: the forward pass's log-sum-exp includes both, and P
//| is final immediately. In S^T a query is a column, so a thread needs the log-sum-exp of its columns, two of
//| every eight, and reads them from shared memory. Rows beyond the end, and rows that see no key, have +inf
//| there, and their P is 0.
/// scores = P^T, in place. `lse` [kFloats * 2] holds the values of the tile's queries.
template <int kFloats>
__device__ __forceinline__ void to_probabilities(float (&scores)[kFloats], const float* lse,
                                                 float scale_log2) {
  const auto* column_pairs = reinterpret_cast<const float2*>(lse) + threadIdx.x % 4;
#pragma unroll
  for (int group = 0; group < kFloats / 4; ++group) {
    const float2 column_pair = column_pairs[4 * group];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      scores[4 * group + i] =
          exp2_approx(scale_log2 * scores[4 * group + i] - (i % 2 == 0 ? column_pair.x : column_pair.y));
  }
}

//| ## dS
//|
//| dS = P * (dP - D), element by element, with D indexed by column like the log-sum-exp. It is rounded at
//| once: as the left operand of dK it stays in registers, and for dQ it goes through shared memory.
/// scores = dS^T, computed from P^T. `d` [kFloats * 2] holds the values of the tile's queries.
template <int kFloats>
__device__ __forceinline__ void to_ds(float (&scores)[kFloats], const float (&dp)[kFloats], const float* d) {
  const auto* column_pairs = reinterpret_cast<const float2*>(d) + threadIdx.x % 4;
#pragma unroll
  for (int group = 0; group < kFloats / 4; ++group) {
    const float2 column_pair = column_pairs[4 * group];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      scores[4 * group + i] *= dp[4 * group + i] - (i % 2 == 0 ? column_pair.x : column_pair.y);
  }
}

//| ## dQ
//|
//| There are two ways to add a thread's part of dQ to the sums in memory. Either the thread adds it from
//| registers, four floats per instruction, or the consumer writes it to shared memory and a thread of another
//| warpgroup adds it by TMA: a pipeline of one stage.
/// Adds a piece of dQ to `sums`.
template <int kFloats>
__device__ __forceinline__ void add_from_registers(const float (&dq)[kFloats], float* sums) {
  auto* to = reinterpret_cast<float4*>(sums) + threadIdx.x % kWarpgroup;
#pragma unroll
  for (int i = 0; i < kFloats; i += 4)
    red_add(to + i / 4 * kWarpgroup, make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]));
}

//| Where additions to a tile of dQ are ordered, each tile has a semaphore per consumer, which counts the
//| blocks that have added. A thread reads it with *acquire* until its turn has come. Acquire makes everything
//| that the earlier blocks had written before they incremented it visible to this thread, too.
__device__ __forceinline__ void wait_for_turn(const int* semaphore, int turn) {
  while (load_acquire(semaphore) != turn) {
  }
}

//| `dq_empty` has one arrival per phase, from the thread that adds. `dq_full` has four: lane 0 of each warp
//| arrives when all lanes have written and made their writes visible to TMA.
/// Hands the part of consumer `number` to the thread that adds it to the sums.
template <typename Shared, int kFloats>
__device__ __forceinline__ void hand_over(Shared& shared, const float (&dq)[kFloats], int number,
                                          uint32_t parity) {
  mbarrier_wait(&shared.dq_empty[number], parity ^ 1);  // TMA has read the previous part
  auto* to = &shared.dq[number][0][threadIdx.x % kWarpgroup];
#pragma unroll
  for (int i = 0; i < kFloats; i += 4)
    to[i / 4 * kWarpgroup] = make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
  fence_proxy_async();  // this thread's writes become visible to TMA
  __syncwarp();         // all lanes have written
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full[number]);
}

//| ## The iterations of blocks that sum a part
//|
//| Two less common kinds of blocks end their iterations differently. At d = 256, and under a softcap, one
//| kind sums dK and dQ. It has a single stage, so its order is different: dK comes first and frees Q, and the
//| next Q is loaded while dQ is computed. At d = 256, dQ is two pieces wide, which use the same registers one
//| after the other.
/// Ends the iteration of a block that sums dK and dQ, when dK has been issued and both consumers have stored
/// their dS. `ds_tile` and `k` are descriptors; the additions go to `sums`, in order if `in_turns`. All lanes
/// of the warp have read the numbers that came with the stage of Q: lane 0 releases it here.
template <typename T, typename Traits, typename Shared, typename State, int kDkFloats, int kSteps>
__device__ __forceinline__ void finish_keys_and_queries(Shared& shared, const State& state,
                                                        float (&dk)[kDkFloats], uint32_t (&ds)[kSteps][4],
                                                        uint64_t ds_tile, uint64_t k, float* sums, int number,
                                                        bool in_turns = Traits::kDeterministic) {
  constexpr int kHeadDim = Traits::kHeadDim, kQueries = Traits::kQueries;
  using Part = DqPart<kHeadDim, kQueries>;
  float dq[Part::kFloats];
  issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, ds_tile, k, number, 0);
  wgmma_wait<1>();
  wgmma_pin(dk);
  wgmma_pin(ds);
  release(shared.q, state);
  wgmma_wait<0>();
  wgmma_pin(dq);
  //| Where additions are ordered, a thread of another warpgroup signals this block's turn, and is notified
  //| when the block has added.
  if (in_turns) mbarrier_wait(&shared.dq_empty[number], state.phase);
  add_from_registers(dq, sums);
#pragma unroll
  for (int piece = 1; piece < Part::kPieces; ++piece) {
    wgmma_pin(dq);
    wgmma_fence();
    issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, ds_tile, k, number, piece);
    wgmma_wait<0>();
    wgmma_pin(dq);
    add_from_registers(dq, sums + piece * Part::kPieceFloats);
  }
  if (in_turns) {
    __syncwarp();  // all lanes have added
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full[number]);
  }
}

//| The other kind sums only dV, with two products per iteration. Q is free once S^T is complete.
/// Ends the iteration of a block that sums only dV, whose product has been issued.
template <typename Shared, typename State, int kDvFloats, int kSteps>
__device__ __forceinline__ void finish_values(Shared& shared, const State& state, float (&dv)[kDvFloats],
                                              uint32_t (&p)[kSteps][4]) {
  __syncwarp();  // all lanes have read the numbers that came with the stage, and S^T is complete
  release(shared.q, state);
  wgmma_wait<0>();
  wgmma_pin(dv);
  wgmma_pin(p);
  release(shared.d_o, state);
}

//| ## dQ, rounded
//|
//| A kernel that runs last reads the sums in the order in which threads have added them, so a thread again
//| holds a `wgmma` accumulator, and stores it like dK. The scale is applied here, once, and not to every dS.
//| The kernel reads 4 bytes and writes 2 for each element of dQ, a notable share of the total for short
//| sequences.
/// Rounds a warpgroup's part of a tile of dQ. `sums` [kQueries, kHeadDim] holds the tile's sums, and `to`
/// points to row 0 of dQ. A thread stores the first `columns` elements of its rows `row` and `row` + 8, if
/// these are below `end`.
template <typename T, int kHeadDim, int kQueries>
__device__ __forceinline__ void round_dq(const float* sums, float scale, T* to, int64_t stride, int row,
                                         int end, int columns = kHeadDim) {
  using Part = DqPart<kHeadDim, kQueries>;
  const int number = threadIdx.x / kWarpgroup;
  const auto* from = reinterpret_cast<const float4*>(sums) +
                     number * (Part::kPieces * Part::kPieceFloats / 4) + threadIdx.x % kWarpgroup;
  const int first_column = Part::kByRows ? 0 : number * Part::kColumns;
  to += first_column, columns -= first_column;
  //| There is one piece up to d = 192, and two at 256.
#pragma unroll
  for (int piece = 0; piece < Part::kPieces; ++piece, from += Part::kPieceFloats / 4) {
    float floats[Part::kFloats];
#pragma unroll
    for (int i = 0; i < Part::kFloats; i += 4) {
      const float4 four = from[i / 4 * kWarpgroup];
      floats[i] = scale * four.x, floats[i + 1] = scale * four.y;
      floats[i + 2] = scale * four.z, floats[i + 3] = scale * four.w;
    }
    store_from_registers(floats, to, stride, row, end, 1.0f, columns);
    to += Part::kPieceColumns, columns -= Part::kPieceColumns;
  }
}

}  // namespace flashbook::hopper
