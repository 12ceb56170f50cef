//| # Step 5: the rest of the way
//|
//| Step 4's loop is as good as it gets. What is left lies around it, and every piece is a switch of its own, so that an
//| ablation can turn it off:
//|
//| | switch | what it does |
//| | --- | --- |
//| | `kSchedule` | blocks that stay and take tile after tile, longest first (`schedule.cuh`) |
//| | `kSplitLoops` | tiles with a mask and tiles without one in loops of their own: the second has no trace of it |
//| | `kLazy` | the output is rescaled only when a maximum has risen by more than 2^8 (`softmax.cuh`) |
//| | `kStoreByTma` | the output leaves through shared memory while the next tile begins (`epilogue.cuh`) |
//| | `kPingpong` | step 3's turns |
//| | `kTrim` | a warpgroup leaves out tiles of keys that only the warpgroups below it see, and rows beyond the end |
//|
//| The producer warpgroup has three threads at work now, each in a warp of its own, so that none waits for what another
//| waits for. One streams keys and values. One brings each consumer its next queries as soon as that has computed its last
//| scores with the old ones. One has the outputs stored. They and the consumers meet at these barriers, besides those of
//| the ring and the notice board:
//|
//| | barrier of a consumer | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `q_full` | the thread that brings queries, with the bytes to come; then the bytes | 1 | the consumer | parity 0 |
//| | `q_empty` | lane 0 of each of its warps, when its last scores are computed | 4 | that thread | parity 1 |
//| | `output_full` | lane 0 of each of its warps, when all lanes have written | 4 | the thread that stores | parity 0 |
//| | `output_empty` | the thread that stores, when TMA has read the tile | 1 | the consumer | parity 1 |
//|
//| Each has one phase for every tile of queries that the block works on, so everybody's parity is that of the tiles before.
//|
//| **What the compiler must see.** Descriptors and barriers are the same for all lanes of a warp, and the hardware wants
//| them in *uniform* registers. The compiler keeps them there only while it can prove that the lanes go together. A
//| consumer that issues the store itself, behind `if (lane == 0)`, loses that proof: a sixth more instructions in the loop
//| at d = 128. That is why a thread of the producer stores, and why `kTrim`, whose loops differ from warpgroup to
//| warpgroup, does not pay.
#pragma once
#include <type_traits>

#include "chapters/05_flash_attention_3/epilogue.cuh"
#include "chapters/05_flash_attention_3/mask.cuh"
#include "chapters/05_flash_attention_3/schedule.cuh"
#include "chapters/05_flash_attention_3/softmax.cuh"
#include "chapters/05_flash_attention_3/specialised.cuh"
#include "chapters/05_flash_attention_3/turns.cuh"

namespace flashbook::flash3 {

/// One version of the kernel, as a type. To turn a switch off, derive from a version and say so.
template <int kHeadDim_, int kConsumers_, int kKeys_, int kSlots_, bool kCausal_>
struct Persistent : Unrecorded {
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kConsumers = kConsumers_;  ///< warpgroups that multiply, 64 queries each: 2 or 3
  static constexpr int kKeys = kKeys_;            ///< of a tile
  static constexpr int kSlots = kSlots_;          ///< of the ring
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr bool kCausal = kCausal_;
  static constexpr Schedule kSchedule = kCausal ? Schedule::first_come : Schedule::in_turn;
  static constexpr bool kSplitLoops = true;
  static constexpr bool kTrim = false;           // what it saves, its loops cost: see above
  static constexpr bool kLazy = kHeadDim != 64;  // at d = 64 the output is so small that asking costs as much
  static constexpr bool kStoreByTma = kHeadDim != 256;  // no room for the output beside Q and the ring
  static constexpr bool kPingpong = kHeadDim == 64;
};

/// Stands for output tiles where there are none.
struct Nothing {};

/// Shared memory of a block.
template <typename T, typename Config>
struct PersistentShared {
  Tile<T, kRowsOfWarpgroup, Config::kHeadDim> q[Config::kConsumers];
  Ring<T, Config::kKeys, Config::kHeadDim, Config::kSlots> ring;
  std::conditional_t<Config::kStoreByTma, Tile<T, kRowsOfWarpgroup, Config::kHeadDim>, Nothing>
      output[Config::kConsumers];
  Board board;
  uint64_t q_full[Config::kConsumers], q_empty[Config::kConsumers];
  uint64_t output_full[Config::kConsumers], output_empty[Config::kConsumers];
};

//| ## The producers

/// The thread that decides on the next tile, posts it and streams its keys and values.
template <typename T, typename Config>
__device__ void produce_keys(PersistentShared<T, Config>& shared, const CUtensorMap& k_map,
                             const CUtensorMap& v_map, const Problem& problem, const TileOrder& order,
                             int* counter) {
  constexpr int kRows = Config::kConsumers * kRowsOfWarpgroup;
  Place<Config::kSlots> place;
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
    const int key_tiles = problem.key_tiles((work.query_tile + 1) * kRows - 1, Config::kKeys);
    stream<Config, true>(shared.ring, place, k_map, v_map, key_tiles, problem.kv_head(work.head));
  }
}

/// The thread that brings queries.
template <typename T, typename Config>
__device__ void produce_queries(PersistentShared<T, Config>& shared, const CUtensorMap& q_map) {
  Place<kSheets> sheet;
  for (uint32_t parity = 0;; parity ^= 1) {  // of the tiles of queries that this block has had
    const Work work = next_work<false>(shared.board, sheet);
    if (work.query_tile < 0) return;
    for (int i = 0; i < Config::kConsumers; ++i) {
      mbarrier_wait(&shared.q_empty[i], parity ^ 1);  // the consumer's last scores are computed
      mbarrier_arrive_expect_tx(&shared.q_full[i], sizeof(shared.q[i]));
      load(shared.q[i], q_map, &shared.q_full[i],
           (work.query_tile * Config::kConsumers + i) * kRowsOfWarpgroup, work.head);
    }
  }
}

/// The thread that has outputs stored.
template <typename T, typename Config>
__device__ void store_outputs(PersistentShared<T, Config>& shared, const CUtensorMap& output_map) {
  Place<kSheets> sheet;
  for (uint32_t parity = 0;; parity ^= 1) {
    const Work work = next_work<false>(shared.board, sheet);
    if (work.query_tile < 0) return;
    for (int i = 0; i < Config::kConsumers; ++i) {
      mbarrier_wait(&shared.output_full[i], parity);  // all four warps have written their rows
      tma_store(output_map, &shared.output[i],
                {0, (work.query_tile * Config::kConsumers + i) * kRowsOfWarpgroup, 0, work.head});
      tma_store_commit();
      tma_store_wait_read<0>();
      mbarrier_arrive(&shared.output_empty[i]);  // the consumer may write its next output
    }
  }
}

//| ## A consumer
//|
//| What a thread of a consumer holds lives in registers. A new one is made for every tile of queries: if scores and output
//| lived on from one to the next, ptxas would run out of registers at d = 256 and put a wait behind every product (C7512).

/// A thread of a consumer, for one tile of queries.
template <typename T, typename Config>
struct Consumer {
  static constexpr int kHeadDim = Config::kHeadDim, kKeys = Config::kKeys;
  static constexpr uint32_t kTileBytes = sizeof(Tile<T, kKeys, kHeadDim>);

  PersistentShared<T, Config>& shared;
  const Problem& problem;
  Place<Config::kSlots>& place;    ///< in the ring; goes on from tile to tile
  const uint32_t parity;           ///< of the tiles of queries before this one
  const int number;                ///< which consumer this is
  const int first_query, query;    ///< the warpgroup's first row; the first of this thread's two
  const uint64_t q, keys, values;  ///< descriptors: its queries, slot 0 as K and as V
  float output[kHeadDim / 2], scores[kKeys / 2];
  Probabilities<kKeys> p;
  Rows rows;

  __device__ __forceinline__ Consumer(PersistentShared<T, Config>& shared, const Problem& problem,
                                      Place<Config::kSlots>& place, uint32_t parity, int number,
                                      int first_query, int query)
      : shared(shared),
        problem(problem),
        place(place),
        parity(parity),
        number(number),
        first_query(first_query),
        query(query),
        q(rows_descriptor(shared.q[number])),
        keys(rows_descriptor(shared.ring.tile[0])),
        values(values_descriptor(shared.ring.tile[0])) {}

  __device__ __forceinline__ void take() {
    if constexpr (Config::kPingpong) take_turn<Config::kConsumers>(number);
  }
  __device__ __forceinline__ void pass() {
    if constexpr (Config::kPingpong) pass_turn<Config::kConsumers>(number);
  }

  /// Lets `tiles` tiles of the ring pass by.
  __device__ __forceinline__ void skip(int tiles) {
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      wait_full(shared.ring, place);  // or this arrival would count for the slot's last tile
      __syncwarp();                   // all lanes have: after lane 0's arrival the slot may be filled again
      release(shared.ring, place);
      place.advance();
    }
  }

  /// How many of the block's tiles of keys this warpgroup needs.
  __device__ __forceinline__ int own_tiles() const {
    return first_query < problem.seqlen_q ? problem.key_tiles(first_query + kRowsOfWarpgroup - 1, kKeys) : 0;
  }

  __device__ __forceinline__ void release_queries() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.q_empty[number]);
  }

  /// The first scores of a tile of queries.
  __device__ __forceinline__ void begin(int tile) {
    wait_full(shared.ring, place);
    wgmma_fence();
    issue_scores<T, kHeadDim, kKeys>(scores, q, wgmma_advance(keys, place.slot * kTileBytes));
    wgmma_wait<0>();
    wgmma_pin(scores);
    release(shared.ring, place);
    if (tile == 0) release_queries();
    place.advance();
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
    rows = Rows::none();
    float correction[2];
    softmax<true, false>(scores, rows, correction, problem.scale_log2);
    round_probabilities<T>(p, scores);
  }

  /// The scores of `tile`, over the values of the tile before it in the loop, tile + 1.
  template <bool kMasked>
  __device__ __forceinline__ void step(int tile) {
    const Place<Config::kSlots> k_place = place, v_place = place.next();
    place = v_place.next();
    wait_full(shared.ring, k_place);
    Config::record(Moment::landed, tile);
    take();
    Config::record(Moment::turn, tile);
    wgmma_pin(output);
    wgmma_fence();
    issue_scores<T, kHeadDim, kKeys>(scores, q, wgmma_advance(keys, k_place.slot * kTileBytes));
    wait_full(shared.ring, v_place);
    wgmma_fence();
    issue_values<T, kHeadDim, kKeys>(output, p, wgmma_advance(values, v_place.slot * kTileBytes));
    Config::record(Moment::issued, tile);
    pass();

    wgmma_wait<1>();  // the scores are done; the values still run
    wgmma_pin(scores);
    Config::record(Moment::scores, tile);
    release(shared.ring, k_place);
    if (tile == 0) release_queries();
    if constexpr (kMasked) {
      if (Config::kSplitLoops || needs_mask(problem, first_query, tile * kKeys, kKeys))
        mask(scores, problem, query, tile * kKeys);
    }
    float correction[2];
    const bool rescale = softmax<kMasked, Config::kLazy>(scores, rows, correction, problem.scale_log2);
    Config::record(Moment::softmax, tile);

    wgmma_wait<0>();  // the values are done: P may be overwritten, O rescaled
    wgmma_pin(output);
    Config::record(Moment::values, tile);
    release(shared.ring, v_place);
    round_probabilities<T>(p, scores);
    if (!Config::kLazy || rescale) rescale_rows(output, correction);
    Config::record(Moment::end, tile);
  }

  /// The last values of a tile of queries.
  __device__ __forceinline__ void end() {
    wait_full(shared.ring, place);
    take();
    wgmma_pin(output);
    wgmma_fence();
    issue_values<T, kHeadDim, kKeys>(output, p, wgmma_advance(values, place.slot * kTileBytes));
    pass();
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared.ring, place);
    place.advance();
  }

  /// One tile of queries: `key_tiles` tiles of keys come through the ring, since that is what the last query
  /// of the block sees. With kTrim this warpgroup lets those pass that it does not need. They come first: K
  /// of the first, then K and V in turn; but V of the last one comes after K of the first that it does need.
  __device__ __forceinline__ void attend(int key_tiles) {
    const int own = Config::kTrim ? own_tiles() : key_tiles;
    if constexpr (Config::kTrim) {
#pragma unroll 1
      for (int i = 0; i < key_tiles - own; ++i) {
        skip(i == 0 ? 1 : 2);
        take();  // everybody takes the same number of turns
        pass();
      }
    }
    mbarrier_wait(&shared.q_full[number], parity);
    if (Config::kTrim && own == 0) {
      __syncwarp();  // all lanes have waited: after lane 0's arrival the next queries may come
      release_queries();
      skip(1);
      return;
    }
    begin(own - 1);
    if (Config::kTrim && own < key_tiles) skip(1);

    int tile = own - 2;
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

/// Attention for the tiles of `order` that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1) persistent(
    const __grid_constant__ CUtensorMap q_map,       // [heads, panels, seqlen_q, 64]
    const __grid_constant__ CUtensorMap k_map,       // [kv heads, panels, seqlen_k, 64]
    const __grid_constant__ CUtensorMap v_map,       // [kv heads, panels, seqlen_k, 64]
    const __grid_constant__ CUtensorMap output_map,  // [heads, panels, seqlen_q, 64], for kStoreByTma
    T* o,                                            // [heads, seqlen_q, head_dim]
    float* lse,                                      // [heads, seqlen_q]
    Problem problem, TileOrder order,
    int* counter) {  // Schedule::first_come: 0 at the start
  constexpr int kConsumers = Config::kConsumers, kRows = kConsumers * kRowsOfWarpgroup;
  auto& shared = *dynamic_shared<PersistentShared<T, Config>>();
  if (threadIdx.x == 0) {
    initialise(shared.ring, kConsumers);
    initialise(shared.board, kConsumers * kWarpsOfWarpgroup + (Config::kStoreByTma ? 2 : 1));
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
    setmaxnreg_dec<kProducerRegisters<kConsumers>>();
    if (threadIdx.x == 0) produce_keys(shared, k_map, v_map, problem, order, counter);
    if (threadIdx.x == 32) produce_queries(shared, q_map);
    if constexpr (Config::kStoreByTma)
      if (threadIdx.x == 64) store_outputs(shared, output_map);
    return;
  }

  setmaxnreg_inc<kConsumerRegisters<kConsumers>>();
  const int number = warpgroup - 1,
            row = warp % kWarpsOfWarpgroup * kRowsOfWarp;  // of the warp in the warpgroup
  if constexpr (Config::kPingpong) open_turns<kConsumers>(number);

  Place<kSheets> sheet;
  Place<Config::kSlots> place;
  for (uint32_t parity = 0;; parity ^= 1) {
    const Work work = next_work<true>(shared.board, sheet);
    if (work.query_tile < 0) return;
    const int block_query = work.query_tile * kRows, first_query = block_query + number * kRowsOfWarpgroup;
    Consumer<T, Config> consumer(shared, problem, place, parity, number, first_query,
                                 first_query + row + threadIdx.x % 32 / 4);
    consumer.attend(problem.key_tiles(block_query + kRows - 1, Config::kKeys));
    const bool any_rows = !Config::kTrim || first_query < problem.seqlen_q;  // else there is no output
    if (any_rows) finish_rows(consumer.output, consumer.rows, problem, lse, work.head, consumer.query);
    if constexpr (Config::kStoreByTma) {
      mbarrier_wait(&shared.output_empty[number], parity ^ 1);  // TMA has read the last output
      if (any_rows) lay_down<T, Config::kHeadDim>(shared.output[number], consumer.output, row);
      __syncwarp();  // all lanes have waited, and written
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.output_full[number]);
    } else if (any_rows) {
      store_from_registers<T, Config::kHeadDim>(consumer.output, problem, o, work.head, consumer.query);
    }
  }
}

}  // namespace flashbook::flash3
