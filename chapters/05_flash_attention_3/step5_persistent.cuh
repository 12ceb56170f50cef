//| # Step 5: the rest of the way
//|
//| Step 5 keeps the order of step 4's loop. It changes what surrounds the loop (5a) and makes it lighter
//| (5b). Every piece has its own switch, so that an ablation can turn it off:
//|
//| | switch | what it does |
//| | --- | --- |
//| | `kSchedule` | persistent blocks take tile after tile, longest first (`common/hopper/tile_scheduler.h`) |
//| | `kSplitLoops` | tiles with and without a mask in separate loops, so the second loop has no code for it |
//| | `kLazy` | maxima are taken, and the output rescaled, only when a score exceeds one by more than 8 log2 units (`common/hopper/softmax.h`) |
//| | `kStoreByTma` | the output leaves through shared memory while the next tile begins (`common/hopper/epilogue.h`) |
//| | `kPingpong` | step 3's turns |
//|
//| **What the compiler must see.** Descriptors and barriers are the same for all lanes of a warp, and the
//| hardware expects them in *uniform* registers. The compiler keeps them there only while it can prove that
//| all lanes agree. A consumer that issues the store itself, behind `if (lane == 0)`, loses that proof: a
//| sixth more instructions in the loop at d = 128. That is why a thread of the producer issues it.
//|
//| ![Three threads of warpgroup 0 and the consumers, what they share in memory, and its
//| barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include <type_traits>

#include "chapters/05_flash_attention_3/specialised.cuh"
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/softmax.h"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::fa3 {

//| ## The switches
//|
//| Some depend on the head dimension. At d = 256 the queries and the pipeline fill shared memory, and leave
//| no room for the output.
/// The choices that each version states.
struct PersistentSizes {
  int head_dim;
  int consumers = 2;  ///< warpgroups that multiply, 64 queries each: 2 or 3
  int keys = 128;     ///< per tile
  int stages = 5;     ///< in the pipeline
  bool causal = false;
};

/// One version of the kernel, as a type. To turn a switch off, derive from a version and override it.
template <PersistentSizes kSizes>
struct PersistentTraits : Unrecorded {
  static constexpr int kHeadDim = kSizes.head_dim, kConsumers = kSizes.consumers, kKeys = kSizes.keys;
  static constexpr int kRows = kConsumers * kRowsPerWarpgroup;  ///< queries of a tile
  static constexpr int kStages = kSizes.stages;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr bool kCausal = kSizes.causal;
  static constexpr Schedule kSchedule = kCausal ? Schedule::dynamic_persistent : Schedule::static_persistent;
  static constexpr bool kSplitLoops = true;
  static constexpr bool kLazy = true;
  static constexpr bool kStoreByTma = kHeadDim != 256;
  static constexpr bool kPingpong = kHeadDim == 64;
};

//| ## Shared memory
//|
//| The queries of all consumers, the pipeline of keys and values, the outputs on their way out, the broadcast
//| of the next tile, and four barriers per consumer (`common/hopper/block.h`).
/// Shared memory of a block.
template <typename T, typename Traits>
struct PersistentShared {
  Tile<T, kRowsPerWarpgroup, Traits::kHeadDim> q[Traits::kConsumers];
  Pipeline<Tile<T, Traits::kKeys, Traits::kHeadDim>, Traits::kStages> pipeline;
  std::conditional_t<Traits::kStoreByTma, Tile<T, kRowsPerWarpgroup, Traits::kHeadDim>, Nothing>
      output[Traits::kConsumers];
  TileBroadcast broadcast;
  BlockBarriers<Traits::kConsumers> barriers;
};

//| ## The producers
//|
//| The producer warpgroup has three active threads now, each in its own warp, so that none waits for another.
//| One streams keys and values. One loads each consumer's next queries as soon as that consumer has computed
//| its last scores with the old ones. One stores the outputs. `common/hopper/block.h` explains the barriers
//| at which they and the consumers meet, and `common/hopper/tile_scheduler.h` how they all learn about the
//| next tile.
//|
//| **Keys and values.** This thread runs ahead of all others. When it has requested the last keys of one tile
//| of queries, it takes the next tile, broadcasts it and continues to fill stages, while the consumers still
//| work on the previous one. The counter that hands out tiles resets itself.
/// Runs the thread that decides on the next tile, broadcasts it and streams its keys and values.
template <typename Traits, typename Shared>
__device__ void produce_keys(Shared& shared, const TileMap& k_map, const TileMap& v_map,
                             const Problem& problem, const TileOrder& order, int* counter) {
  PipelineState<Traits::kStages> state;
  hand_out_tiles<Traits::kSchedule, true>(shared.broadcast, order, counter, [&](const WorkTile& work) {
    const int key_tiles = problem.key_tiles((work.query_tile + 1) * Traits::kRows - 1, Traits::kKeys);
    stream<Traits, true>(shared.pipeline, state, k_map, v_map, key_tiles, problem.kv_head(work.head));
  });
}

//| **Queries.** This thread does not compute a schedule: it takes each tile from the broadcast, as the
//| consumers do, and lags behind the thread above.
/// Runs the thread that loads queries.
template <typename Traits, typename Shared>
__device__ void produce_queries(Shared& shared, const TileMap& q_map) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {  // parity of the block's number of tiles so far
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    load_queries(shared, q_map, parity, work.query_tile * Traits::kRows, work.head);
  }
}

//| **Outputs.** This is the same loop, one tile later: an output is complete when the last product of its
//| tile is.
/// Runs the thread that stores outputs.
template <typename Traits, typename Shared>
__device__ void consume_outputs(Shared& shared, const TileMap& output_map) {
  PipelineState<kBroadcastStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<false>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    store_outputs(shared, output_map, parity, work.query_tile * Traits::kRows, work.head);
  }
}

//| ## A consumer
//|
//| A thread of a consumer keeps everything in registers. A new Consumer is made for every tile of queries: if
//| scores and output lived on from one to the next, ptxas would run out of registers at d = 256 and insert a
//| wait after every product (warning C7512).

/// A thread of a consumer, for one tile of queries.
template <typename T, typename Traits>
struct Consumer {
  static constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys;
  static constexpr uint32_t kTileBytes = sizeof(Tile<T, kKeys, kHeadDim>);

  //| References and constants first. The compiler keeps all of it in registers: every function below is
  //| inlined, and no Consumer is stored in memory. `state` belongs to the kernel, since the pipeline
  //| continues from tile to tile of queries while a Consumer ends.
  PersistentShared<T, Traits>& shared;
  const Problem& problem;
  PipelineState<Traits::kStages>& state;  ///< position in the pipeline; kept from tile to tile
  const uint32_t parity;                  ///< phase parity for this query tile
  const int number;                       ///< index of this consumer
  const int first_query, query;           ///< the warpgroup's first row; the first of this thread's two
  const uint64_t q, keys, values;         ///< descriptors: its queries, stage 0 as K and as V
  float output[kHeadDim / 2], scores[kKeys / 2];
  Fragments<kKeys> p;
  SoftmaxRows<Traits::kLazy> rows;

  //| The descriptors are recomputed for each Consumer, from constants, which saves the registers that would
  //| hold them.
  __device__ __forceinline__ Consumer(PersistentShared<T, Traits>& shared, const Problem& problem,
                                      PipelineState<Traits::kStages>& state, uint32_t parity, int number,
                                      int first_query, int query)
      : shared(shared),
        problem(problem),
        state(state),
        parity(parity),
        number(number),
        first_query(first_query),
        query(query),
        q(k_major(shared.q[number])),
        keys(k_major(shared.pipeline.tile[0])),
        values(mn_major(shared.pipeline.tile[0])) {}

  //| ### Begin and step
  //|
  //| These two and the last P V are the loop of step 4 in pieces: the first scores alone, then scores and P V
  //| together, then P V alone. `begin` starts a tile of queries: it sets O and the sums to zero.
  //| After the last scores the queries have been read, and their buffer is released, so that TMA can load the
  //| next ones during the remaining work.
  /// Computes the first scores of a query tile.
  __device__ __forceinline__ void begin(int tile) {
    wait_full(shared.pipeline, state);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, state.stage * kTileBytes));
    wgmma_wait<0>();
    wgmma_pin(scores);
    release(shared.pipeline, state);
    if (tile == 0) release_queries(shared, number);
    state.advance();
    //| The first tile always needs the mask: it holds the end of the sequence, or the diagonal.
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
    rows = rows.none();
    float correction[2];
    softmax(scores, rows, correction, problem.scale_log2);
    round_to_fragments<T>(p, scores);
  }

  //| One round of the loop. `kMasked` makes two loops of it: one whose tiles may need the mask, and one
  //| without any code for it.
  /// Computes the scores of `tile`, together with P V of the tile before it in the loop, tile + 1.
  template <bool kMasked>
  __device__ __forceinline__ void step(int tile) {
    const PipelineState<Traits::kStages> k_state = state, v_state = state.next();
    state = v_state.next();
    wait_full(shared.pipeline, k_state);
    Traits::record(Moment::landed, tile);
    take_turn<Traits>(number);
    Traits::record(Moment::turn, tile);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, k_state.stage * kTileBytes));
    wait_full(shared.pipeline, v_state);
    wgmma_fence();
    issue_accumulate<T>(output, p, wgmma_advance(values, v_state.stage * kTileBytes));
    Traits::record(Moment::issued, tile);
    pass_turn<Traits>(number);

    //| The two waits are also those of step 4. Between them is the softmax, during which the product with V
    //| still runs. K's stage is released after the first wait, V's after the second.
    wgmma_wait<1>();  // the scores are done; the product with V still runs
    wgmma_pin(scores);
    Traits::record(Moment::scores, tile);
    release(shared.pipeline, k_state);
    if (tile == 0) release_queries(shared, number);
    if constexpr (kMasked) {
      if (Traits::kSplitLoops || needs_mask(problem, first_query, tile * kKeys, kKeys))
        mask(scores, problem, query, tile * kKeys);
    }
    float correction[2];
    bool rescale = true;
    if constexpr (Traits::kLazy)
      rescale = softmax_lazily(scores, rows, correction, problem.scale_log2);
    else
      softmax(scores, rows, correction, problem.scale_log2);
    Traits::record(Moment::softmax, tile);

    //| `softmax_lazily` returned whether any row of the warp needs its output rescaled. With lazy rescaling,
    //| hardly any row does after the first few tiles, and the branch is the same for the whole warp.
    wgmma_wait<0>();  // P V is done: P may be overwritten, O rescaled
    wgmma_pin(output);
    wgmma_pin(p);
    Traits::record(Moment::values, tile);
    release(shared.pipeline, v_state);
    round_to_fragments<T>(p, scores);
    if (rescale) rescale_rows(output, correction);
    Traits::record(Moment::end, tile);
  }

  //| ### One tile of queries
  //|
  //| A consumer waits for its queries, begins with the last tile of keys, processes the masked tiles and then
  //| the unmasked ones. All consumers process the same tiles of keys, as many as the block's last query
  //| needs.
  /// Processes a query tile. `key_tiles`: how many tiles of keys come through the pipeline, as many as the
  /// last query of the block sees.
  __device__ __forceinline__ void attend(int key_tiles) {
    mbarrier_wait(&shared.barriers.q_full[number], parity);
    begin(key_tiles - 1);

    //| Where does the mask end? The warpgroup's first query sees the fewest keys. Tiles that it sees in full
    //| need no mask in any row, so from there on the second loop runs, or the only one, if there is no mask.
    int tile = key_tiles - 2;
    if constexpr (Traits::kCausal && Traits::kSplitLoops) {
      const int unmasked = (problem.last_key(first_query) + 1) / kKeys;  // tiles that all rows see in full
#pragma unroll 1
      for (; tile >= max(unmasked, 0); --tile) step<true>(tile);
    }
#pragma unroll 1
    for (; tile >= 0; --tile) step<Traits::kCausal && !Traits::kSplitLoops>(tile);
    //| The last product takes a turn, too, and releases its stage, since the producer has begun to load the
    //| next tile's keys (`common/hopper/epilogue.h`).
    last_values<T, Traits>(output, p, values, shared.pipeline, state, number);
  }
};

//| ## The kernel

/// Computes attention for the tiles of `order` that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1) persistent(
    const __grid_constant__ TileMap q_map,       // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ TileMap k_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap v_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap output_map,  // [batch, heads, panels, seqlen_q, 64], for kStoreByTma
    T* o,                                        // [batch, heads, seqlen_q, head_dim], strided
    float* lse,                                  // [batch, heads, seqlen_q]
    Problem problem, TileOrder order,
    int* counter) {  // Schedule::dynamic_persistent: 0 at the start
  constexpr int kConsumers = Traits::kConsumers;
  using Shared = PersistentShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) {
    //| All warps of the consumers read the broadcast, and so do the thread that loads queries and the one
    //| that stores, if there is one.
    initialise(shared.pipeline, 1, kConsumers * kWarpsPerWarpgroup, "full", "empty");
    initialise(shared.broadcast, kConsumers * kWarpsPerWarpgroup + (Traits::kStoreByTma ? 2 : 1));
    initialise(shared.barriers);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;

  //| The three threads of the producer are lane 0 of three different warps. In one warp they would wait for
  //| each other.
  if (warpgroup == 0) {
    setmaxnreg_dec<kProducerRegisters<kConsumers>>();
    if (threadIdx.x == 0) produce_keys<Traits>(shared, k_map, v_map, problem, order, counter);
    if (threadIdx.x == 32) produce_queries<Traits>(shared, q_map);
    if constexpr (Traits::kStoreByTma)
      if (threadIdx.x == 64) consume_outputs<Traits>(shared, output_map);
    return;
  }

  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int number = warpgroup - 1,
            row = warp % kWarpsPerWarpgroup * kRowsPerWarp;  // first row of the warp in its warpgroup
  open_turns<Traits>(number);

  //| ## A consumer's loop
  //|
  //| A consumer takes the next tile from the broadcast, attends to it, and hands the output over. `parity`
  //| changes with each tile of queries, since each of the four barriers has one phase per tile. A negative
  //| tile ends the loop.
  PipelineState<kBroadcastStages> next;
  PipelineState<Traits::kStages> state;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int head = problem.number(work.head);  // takes one register, work.head takes two
    const int block_query = work.query_tile * Traits::kRows,
              first_query = block_query + number * kRowsPerWarpgroup;
    Consumer<T, Traits> consumer(shared, problem, state, parity, number, first_query,
                                 first_query + row + threadIdx.x % 32 / 4);
    consumer.attend(problem.key_tiles(block_query + Traits::kRows - 1, Traits::kKeys));
    finish_rows(consumer.output, consumer.rows, problem, lse, head, consumer.query);
    if constexpr (Traits::kStoreByTma)
      hand_over_output(shared, number, parity,
                       [&] { store_to_smem(shared.output[number], consumer.output, row); });
    else
      store_from_registers<T>(
          consumer.output, consumer.query, problem.seqlen_q,
          [&, q = problem.head_of(head)](int query) { return o + problem.o_offset(q, query); }, 1.0f,
          problem.head_dim);
  }
}

}  // namespace flashbook::fa3
