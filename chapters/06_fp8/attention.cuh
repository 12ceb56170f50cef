//| # The kernel of all steps
//|
//| Chapter 5 has shown how a block is divided: a producer warpgroup that brings tiles, consumers that multiply. In FP8 the
//| producer has more to do. Its four warps:
//|
//| | warp | what it does |
//| | --- | --- |
//| | 0 | one thread, the *loader*, takes the next tile of queries, posts it, and has TMA bring its keys and values |
//| | 1 | one thread brings each consumer its queries, and has its output stored |
//| | 2, 3 | the *transposers* turn each tile of values (`transpose.cuh`) |
//|
//| The steps differ in switches, and in nothing else:
//|
//| | step | switch | what it does |
//| | --- | --- | --- |
//| | 1 | | V turned byte by byte, P between 0 and 1, both products of a tile waited for together |
//| | 2 | `kMatrices` | V turned by `ldmatrix`, byte permutations and `stmatrix` |
//| | | `kOverlap` | the next tile's scores over this tile's values, chapter 5's step 4 |
//| | | `kOffset` | P times 2^8, so that e4m3's range is used (`softmax.cuh`) |
//| | 3, 4 | `kBlockScales` | a scale for each tile of Q, K and V |
//| | 5 | `kSchedule`, `kSplitLoops`, `kLazy`, `kStoreByTma`, `kPingpong` | chapter 5's step 5 |
//|
//| **Budget**, bytes and registers of a consumer's thread:
//|
//| | d | queries | keys of a tile | Q | keys, raw, turned | output | registers: O, S, P, Q |
//| | --- | --- | --- | --- | --- | --- | --- |
//| | 64 | 3 x 64 | 128 | 12 KB | 4, 2, 4 slots of 8 KB | 24 KB | 32, 64, 16, 8 of 152 |
//| | 128 | 2 x 64 | 128 | 16 KB | 3, 2, 3 slots of 16 KB | 32 KB | 64, 64, 16, 16 of 232 |
//| | 128, long | 3 x 64 | 96 | 24 KB | 3, 2, 3 slots of 12 KB | 48 KB | 64, 48, 12, 0 of 160 |
//| | 256 | 2 x 64 | 96 | 32 KB | 3, 2, 2 slots of 24 KB | | 128, 48, 12, 0 of 232 |
//|
//| **Cycles** of a multiprocessor for a tile of 128 queries and 128 keys at d = 128, if each unit had nothing to wait for:
//|
//| | unit | cycles |
//| | --- | --- |
//| | tensor cores, 8192 FLOP a cycle | 1024 |
//| | exponentials, 16 a cycle | 1024 |
//| | instructions of a scheduler, two consumer warps and half a transposer | about 950 |
//| | shared memory, 128 bytes a cycle: `wgmma` 64 KB, TMA 32 KB, the transposition 32 KB | 1024 |
//|
//| Four units, all full: that is FP8 attention at d = 128, and why it reaches a smaller part of the tensor cores' rate than
//| chapter 5 does. With Q read from shared memory for each tile, as in chapter 5, the last line would be 1152. At d = 64 the
//| exponentials take twice as long as the products; at d = 256 the products take twice as long as the exponentials.
#pragma once
#include <type_traits>

#include "chapters/06_fp8/epilogue.cuh"
#include "chapters/06_fp8/mask.cuh"
#include "chapters/06_fp8/schedule.cuh"
#include "chapters/06_fp8/transpose.cuh"
#include "chapters/06_fp8/turns.cuh"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::fp8 {

/// One version of the kernel, as a type; this one is step 5's. To turn a switch, derive from a version.
template <int kHeadDim_, int kConsumers_, int kKeys_, bool kCausal_>
struct Fast {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kConsumers = kConsumers_;  ///< warpgroups that multiply, 64 queries each: 2 or 3
  static constexpr int kKeys = kKeys_;            ///< of a tile
  static constexpr bool kCausal = kCausal_;
  static constexpr int kKeySlots = kHeadDim == 64 ? 4 : 3;
  static constexpr int kRawSlots = 2;
  static constexpr int kTurnedSlots = kHeadDim == 64 ? 4 : kHeadDim == 128 ? 3 : 2;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  // Of a thread, after setmaxnreg. As in chapter 5: 40 + 2 * 232 = 3 * 168. Three consumers can give the
  // transposers more than there: P takes 16 registers, not 32. 56 + 3 * 152 = 4 * 128.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 56 : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 152 : 232;
  static constexpr bool kQueriesInRegisters = kHeadDim != 256;  // where there are none left
  static constexpr bool kMatrices = true;
  static constexpr bool kOverlap = true;
  static constexpr bool kBlockScales = false;
  static constexpr bool kSplitLoops = true;
  static constexpr bool kPingpong = kHeadDim != 128;  // measured; see the chapter's page
  static constexpr bool kLazy = true;
  static constexpr int kOffset = 6;
  static constexpr bool kStoreByTma = kHeadDim != 256;  // no room for the output
  static constexpr Schedule kSchedule = kCausal ? Schedule::first_come : Schedule::in_turn;
};

/// Stands for output tiles where there are none.
struct Nothing {};

/// Shared memory of a block.
template <typename Config>
struct Shared {
  static constexpr int kConsumers = Config::kConsumers;
  Tile<kRowsOfWarpgroup, Config::kHeadDim> q[kConsumers];
  Ring<Tile<Config::kKeys, Config::kHeadDim>, Config::kKeySlots> keys;
  Ring<Tile<Config::kKeys, Config::kHeadDim>, Config::kRawSlots> raw;
  Ring<Tile<Config::kHeadDim, Config::kKeys>, Config::kTurnedSlots> turned;
  std::conditional_t<Config::kStoreByTma, OutputTile<Config::kHeadDim>, Nothing> output[kConsumers];
  Board board;
  uint64_t q_full[kConsumers], q_empty[kConsumers];
  uint64_t output_full[kConsumers], output_empty[kConsumers];
};

//| ## The producer

/// How many tiles of keys a tile of queries is multiplied by.
template <typename Config>
__device__ __forceinline__ int key_tiles_of(const Problem& problem, Work work) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  return problem.key_tiles((work.query_tile + 1) * kRows - 1, Config::kKeys);
}

/// The loader. Keys of a tile come before the values of the tile before: consumers want them in that order.
template <typename Config>
__device__ void load_tiles(Shared<Config>& shared, const CUtensorMap& k_map, const CUtensorMap& v_map,
                           const Problem& problem, const TileOrder& order, int* counter) {
  Place<Config::kKeySlots> key;
  Place<Config::kRawSlots> value;
  Place<kSheets> sheet;
  int index = blockIdx.x;
  for (;;) {
    const Work work = work_at(order, index);
    post(shared.board, sheet, work);
    if (work.query_tile < 0) return;
    if constexpr (Config::kSchedule == Schedule::one_tile) index = order.tiles;
    if constexpr (Config::kSchedule == Schedule::in_turn) index += gridDim.x;
    // Asked for now, needed when this tile's keys are under way: nobody waits for the answer.
    if constexpr (Config::kSchedule == Schedule::first_come) index = gridDim.x + atomicAdd(counter, 1);
    const int head = problem.kv_head(work.head), tiles = key_tiles_of<Config>(problem, work);
    fill(shared.keys, key, k_map, (tiles - 1) * Config::kKeys, head);
#pragma unroll 1  // the producer has few registers
    for (int tile = tiles - 1; tile >= 0; --tile) {
      if (tile > 0) fill(shared.keys, key, k_map, (tile - 1) * Config::kKeys, head);
      fill(shared.raw, value, v_map, tile * Config::kKeys, head);
    }
  }
}

/// Brings the queries of a tile, and then has the output of the tile before stored: the next queries must
/// not wait for that. One thread.
template <typename Config>
__device__ void load_queries(Shared<Config>& shared, const CUtensorMap& q_map,
                             const CUtensorMap& output_map) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  Place<kSheets> sheet;
  Work before{0, -1};
  for (uint32_t parity = 0;; parity ^= 1) {  // of the tiles of queries that this block has had
    const Work work = next_work<false>(shared.board, sheet);
    if (work.query_tile >= 0)
      for (int i = 0; i < Config::kConsumers; ++i) {
        mbarrier_wait(&shared.q_empty[i], parity ^ 1);  // the consumer has read its queries
        mbarrier_arrive_expect_tx(&shared.q_full[i], sizeof(shared.q[i]));
        load(shared.q[i], q_map, &shared.q_full[i], work.query_tile * kRows + i * kRowsOfWarpgroup,
             work.head);
      }
    if constexpr (Config::kStoreByTma)
      if (before.query_tile >= 0)
        for (int i = 0; i < Config::kConsumers; ++i) {
          mbarrier_wait(&shared.output_full[i], parity ^ 1);  // all four warps have written their rows
          tma_store(output_map, &shared.output[i],
                    {0, before.query_tile * kRows + i * kRowsOfWarpgroup, 0, before.head});
          tma_store_commit();
          tma_store_wait_read<0>();
          mbarrier_arrive(&shared.output_empty[i]);  // the consumer may write its next output
        }
    if (work.query_tile < 0) return;
    before = work;
  }
}

/// A transposer. `warp` counts them.
template <typename Config>
__device__ void turn_values(Shared<Config>& shared, const Problem& problem, int warp) {
  Place<Config::kRawSlots> from;
  Place<Config::kTurnedSlots> to;
  Place<kSheets> sheet;
  for (;;) {
    const Work work = next_work<true>(shared.board, sheet);
    if (work.query_tile < 0) return;
#pragma unroll 1
    for (int tiles = key_tiles_of<Config>(problem, work); tiles > 0; --tiles) {
      wait_full(shared.raw, from);
      mbarrier_wait(&shared.turned.empty[to.slot], to.round ^ 1);  // consumers have read what it held before
      if constexpr (Config::kMatrices)
        transpose_matrices(shared.turned.tile[to.slot], shared.raw.tile[from.slot], warp);
      else
        transpose_bytes(shared.turned.tile[to.slot], shared.raw.tile[from.slot], warp);
      fence_proxy_async();  // this lane's writes become visible to wgmma
      __syncwarp();         // all lanes have read and written
      release(shared.raw, from);
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.turned.full[to.slot]);
      from.advance();
      to.advance();
    }
  }
}

//| ## A consumer
//|
//| What a thread of a consumer holds lives in registers; as in chapter 5 a new one is made for every tile of queries.

/// A thread of a consumer, for one tile of queries.
template <typename Config>
struct Consumer {
  static constexpr int kHeadDim = Config::kHeadDim, kKeys = Config::kKeys;

  Shared<Config>& shared;
  const Problem& problem;
  Place<Config::kKeySlots>& key;       ///< in the ring of keys; goes on from tile to tile
  Place<Config::kTurnedSlots>& value;  ///< in that of values
  const int number;                    ///< which consumer this is
  const int head, kv_head;
  const int first_query, query;  ///< the warpgroup's first row; the first of this thread's two
  const uint64_t keys, values;   ///< descriptors: slot 0
  const float factor;            ///< of all scores, without the keys' scales if those change
  std::conditional_t<Config::kQueriesInRegisters, Fragments<kHeadDim>, uint64_t> q;
  float output[kHeadDim / 2], scores[kKeys / 2];
  Fragments<kKeys> p;
  Rows rows;

  __device__ __forceinline__ Consumer(Shared<Config>& shared, const Problem& problem,
                                      Place<Config::kKeySlots>& key, Place<Config::kTurnedSlots>& value,
                                      int number, int head, int first_query, int query)
      : shared(shared),
        problem(problem),
        key(key),
        value(value),
        number(number),
        head(head),
        kv_head(problem.kv_head(head)),
        first_query(first_query),
        query(query),
        keys(shared.keys.tile[0].descriptor()),
        values(shared.turned.tile[0].descriptor()),
        factor(problem.scale_log2 *
               problem.q_scale.at(problem.q_by_kv_head ? kv_head : head, first_query / kRowsOfWarpgroup) *
               (Config::kBlockScales ? 1.0f : problem.k_scale.at(kv_head, 0))) {}

  __device__ __forceinline__ void take() {
    if constexpr (Config::kPingpong) take_turn<Config::kConsumers>(number);
  }
  __device__ __forceinline__ void pass() {
    if constexpr (Config::kPingpong) pass_turn<Config::kConsumers>(number);
  }

  /// The scales of a tile of keys.
  __device__ __forceinline__ TileScale scale_of(int tile) const {
    if constexpr (!Config::kBlockScales) return {factor, 0.0f, 1.0f};
    static_assert(!Config::kBlockScales || 128 % kKeys == 0, "a tile of keys has one scale");
    const int block = tile * kKeys / 128;
    const float v_scale = problem.v_scale.at(kv_head, block);
    return {factor * problem.k_scale.at(kv_head, block), __log2f(v_scale), 1 / v_scale};
  }

  /// Waits for the queries. If they go to registers, the next ones may come at once.
  __device__ __forceinline__ void take_queries(uint32_t parity) {
    mbarrier_wait(&shared.q_full[number], parity);
    if constexpr (Config::kQueriesInRegisters) {
      read_queries<kHeadDim>(q, shared.q[number], threadIdx.x / 32 % kWarpsOfWarpgroup * kRowsOfWarp);
      __syncwarp();  // all lanes have read
      release_queries();
    } else {
      q = shared.q[number].descriptor();
    }
  }
  __device__ __forceinline__ void release_queries() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.q_empty[number]);
  }

  __device__ __forceinline__ void issue_next_scores() {
    issue_scores<kHeadDim, kKeys>(scores, q, wgmma_advance(keys, key.slot * sizeof(shared.keys.tile[0])));
  }
  __device__ __forceinline__ void issue_next_values() {
    issue_values<kHeadDim, kKeys>(output, p,
                                  wgmma_advance(values, value.slot * sizeof(shared.turned.tile[0])));
  }

  /// The scores at `key` have been read from shared memory.
  __device__ __forceinline__ void scores_done(int tile) {
    release(shared.keys, key);
    key.advance();
    if (!Config::kQueriesInRegisters && tile == 0) release_queries();
  }
  __device__ __forceinline__ void values_done() {
    release(shared.turned, value);
    value.advance();
  }

  template <bool kMasked, bool kLazy>
  __device__ __forceinline__ bool to_probabilities(float (&correction)[2], const TileScale& scale) {
    return softmax<kMasked, kLazy, Config::kOffset, Config::kBlockScales>(scores, rows, correction, scale);
  }

  /// The first scores of a tile of queries.
  __device__ __forceinline__ void begin(int tile) {
    const TileScale scale = scale_of(tile);
    wait_full(shared.keys, key);
    wgmma_fence();
    issue_next_scores();
    wgmma_wait<0>();
    wgmma_pin(scores);
    scores_done(tile);
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
    rows = Rows::none();
    float correction[2];
    to_probabilities<true, false>(correction, scale);
    round_probabilities(p, scores);
  }

  /// The scores of `tile`, and the values of the tile before it in the loop, tile + 1.
  template <bool kMasked>
  __device__ __forceinline__ void step(int tile) {
    const TileScale scale = scale_of(tile);
    wait_full(shared.keys, key);
    take();
    wgmma_pin(output);
    wgmma_fence();
    issue_next_scores();
    wait_full(shared.turned, value);
    wgmma_fence();
    issue_next_values();
    pass();

    if constexpr (!Config::kOverlap) {
      wgmma_wait<0>();  // both are done
      wgmma_pin(output);
      values_done();
    } else {
      wgmma_wait<1>();  // the scores are done; the values still run
    }
    wgmma_pin(scores);
    scores_done(tile);
    if constexpr (kMasked) {
      if (Config::kSplitLoops || needs_mask(problem, first_query, tile * kKeys, kKeys))
        mask(scores, problem, query, tile * kKeys);
    }
    float correction[2];
    const bool rescale = to_probabilities<kMasked, Config::kLazy>(correction, scale);
    if constexpr (Config::kOverlap) {
      wgmma_wait<0>();  // the values are done: P may be overwritten, O rescaled
      wgmma_pin(output);
      values_done();
    }
    round_probabilities(p, scores);
    if (!Config::kLazy || rescale) rescale_rows(output, correction);
  }

  /// The last values of a tile of queries.
  __device__ __forceinline__ void end() {
    wait_full(shared.turned, value);
    take();
    wgmma_pin(output);
    wgmma_fence();
    issue_next_values();
    pass();
    wgmma_wait<0>();
    wgmma_pin(output);
    values_done();
  }

  /// One tile of queries, whose last one sees `key_tiles` tiles of keys.
  __device__ __forceinline__ void attend(int key_tiles) {
    begin(key_tiles - 1);
    int tile = key_tiles - 2;
    if constexpr (Config::kCausal && Config::kSplitLoops) {
      const int unmasked = (problem.last_key(first_query) + 1) / kKeys;  // tiles that all rows see whole
#pragma unroll 1
      for (; tile >= max(unmasked, 0); --tile) step<true>(tile);
    }
#pragma unroll 1
    for (; tile >= 0; --tile) step<Config::kCausal && !Config::kSplitLoops>(tile);
    end();
  }
};

//| ## The kernel

/// Attention for the tiles of `order` that this block takes.
template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    attend(const __grid_constant__ CUtensorMap q_map,       // [heads, panels, seqlen_q, panel]
           const __grid_constant__ CUtensorMap k_map,       // [kv heads, panels, seqlen_k, panel]
           const __grid_constant__ CUtensorMap v_map,       // [kv heads, panels, seqlen_k, panel]
           const __grid_constant__ CUtensorMap output_map,  // [heads, panels, seqlen_q, 64], for kStoreByTma
           __nv_bfloat16* o,                                // [heads, seqlen_q, head_dim]
           float* lse,                                      // [heads, seqlen_q]
           Problem problem, TileOrder order,
           int* counter) {  // Schedule::first_come: 0 at the start
  constexpr int kConsumers = Config::kConsumers, kRows = kConsumers * kRowsOfWarpgroup;
  auto& shared = *dynamic_shared<Shared<Config>>();
  if (threadIdx.x == 0) {
    initialise(shared.keys, 1, kConsumers * kWarpsOfWarpgroup, "keys full", "keys empty");
    initialise(shared.raw, 1, kTransposers, "raw full", "raw empty");
    initialise(shared.turned, kTransposers, kConsumers * kWarpsOfWarpgroup, "turned full", "turned empty");
    initialise(shared.board, kConsumers * kWarpsOfWarpgroup + kTransposers + 1);
    for (int i = 0; i < kConsumers; ++i) {
      mbarrier_init(&shared.q_full[i], 1);
      name_mbarrier(&shared.q_full[i], "q_full", i);
      mbarrier_init(&shared.q_empty[i], kWarpsOfWarpgroup);
      name_mbarrier(&shared.q_empty[i], "q_empty", i);
      mbarrier_init(&shared.output_full[i], kWarpsOfWarpgroup);
      name_mbarrier(&shared.output_full[i], "output_full", i);
      mbarrier_init(&shared.output_empty[i], 1);
      name_mbarrier(&shared.output_empty[i], "output_empty", i);
    }
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready

  // The same in all threads of a warp; the shuffle tells the compiler so.
  const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32, 0), warpgroup = warp / kWarpsOfWarpgroup;

  if (warpgroup == 0) {
    setmaxnreg_dec<Config::kProducerRegisters>();
    if (threadIdx.x == 0) load_tiles(shared, k_map, v_map, problem, order, counter);
    if (threadIdx.x == 32) load_queries(shared, q_map, output_map);
    if (warp >= kWarpsOfWarpgroup - kTransposers)
      turn_values(shared, problem, warp - (kWarpsOfWarpgroup - kTransposers));
    return;
  }

  setmaxnreg_inc<Config::kConsumerRegisters>();
  const int number = warpgroup - 1;
  const int row = warp % kWarpsOfWarpgroup * kRowsOfWarp + threadIdx.x % 32 / 4;  // of the warpgroup's
  if constexpr (Config::kPingpong) open_turns<kConsumers>(number);

  Place<kSheets> sheet;
  Place<Config::kKeySlots> key;
  Place<Config::kTurnedSlots> value;
  for (uint32_t parity = 0;; parity ^= 1) {
    const Work work = next_work<true>(shared.board, sheet);
    if (work.query_tile < 0) return;
    const int first_query = work.query_tile * kRows + number * kRowsOfWarpgroup;
    Consumer<Config> consumer(shared, problem, key, value, number, work.head, first_query, first_query + row);
    const float v_scale = Config::kBlockScales ? 1.0f : problem.v_scale.at(consumer.kv_head, 0);
    consumer.take_queries(parity);
    consumer.attend(key_tiles_of<Config>(problem, work));
    finish_rows<Config::kOffset>(consumer.output, consumer.rows, problem, lse, work.head, consumer.query,
                                 v_scale);
    if constexpr (Config::kStoreByTma) {
      mbarrier_wait(&shared.output_empty[number], parity ^ 1);  // TMA has read the last output
      lay_down<Config::kHeadDim>(shared.output[number], consumer.output, row);
      __syncwarp();  // all lanes have waited, and written
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.output_full[number]);
    } else {
      store_from_registers<Config::kHeadDim>(consumer.output, problem, o, work.head, consumer.query);
    }
  }
}

}  // namespace flashbook::fp8
