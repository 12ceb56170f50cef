//| # The kernel
//|
//| A consumer's loop is chapter 5's: the scores of the next tile are issued before the product with V of this
//| one, so that the softmax can overlap with that product (`ptxas` moves its exponentials behind it). FP8
//| changes the rest: the producer, the tiles, and the softmax's scales.
//|
//| ![TMA loads keys and raw values, two warps transpose the values, consumers read keys and transposed
//| values](../../docs/figures/fp8_block.svg)
#pragma once
#include "chapters/06_fp8/producer.cuh"
#include "chapters/06_fp8/step7_transpose_once.cuh"
#include "common/hopper/mask.h"
#include "common/hopper/pingpong.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::fp8 {

//| ## A consumer
//|
//| Everything that a consumer's thread holds is in registers; as in chapter 5, a new object is constructed
//| for every tile of queries.

/// A thread of a consumer, for one tile of queries.
template <typename Traits>
struct Consumer {
  static constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys;

  //| There are two pipelines now, which advance independently: K as TMA loads it, and V once it has been
  //| transposed. So a consumer has two states, where chapter 5 has one. `factor` combines everything that
  //| scores are multiplied by before the exponential: the softmax scale, log2(e), and the scales of Q and K.
  //| `q` is a descriptor, or the queries themselves in registers.
  Shared<Traits>& shared;
  const Problem& problem;
  PipelineState<Traits::kKeyStages>& key;           ///< position in the pipeline of keys, kept across tiles
  PipelineState<Traits::kTransposedStages>& value;  ///< position in the pipeline of values
  const int number;                                 ///< index of this consumer
  const int scale_head;
  const int first_query, query;  ///< the warpgroup's first row; the first of this thread's two
  const uint64_t keys, values;   ///< descriptors: stage 0
  const float query_factor;      ///< factor of all scores, without the keys' scales
  const float factor;            ///< includes the keys' scales, unless they change from tile to tile
  std::conditional_t<Traits::kQueriesInRegisters, Fragments<kHeadDim>, uint64_t> q;
  float output[kHeadDim / 2], scores[kKeys / 2];
  float sums[kOnesColumns / 2];  ///< sums of a tile's probabilities, with kSumsByProduct
  Fragments<kKeys> p;
  Rows rows;
  float raised[2] = {1, 1};  ///< in step 9: the corrections since the last promotion, multiplied

  //| A block of 64 queries has one scale, and a warpgroup owns 64 queries, so the scale of Q is read once.
  //| With block scales that of K changes from tile to tile and is left out here. The clamp to the last row is
  //| for a warpgroup whose rows are all past the end.
  __device__ __forceinline__ Consumer(Shared<Traits>& shared, const Problem& problem,
                                      PipelineState<Traits::kKeyStages>& key,
                                      PipelineState<Traits::kTransposedStages>& value, int number, Head head,
                                      int first_query, int query)
      : shared(shared),
        problem(problem),
        key(key),
        value(value),
        number(number),
        scale_head(problem.scale_head(head)),
        first_query(first_query),
        query(query),
        keys(shared.keys.tile[0].descriptor()),
        values(shared.transposed.tile[0].descriptor()),
        query_factor(problem.scale_log2 *
                     problem.q_scale.at(problem.q_by_kv_head ? scale_head : problem.number(head),
                                        min(first_query, problem.seqlen_q - 1) / kRowsPerWarpgroup)),
        factor(not_zero(query_factor * (Traits::kBlockScales ? 1.0f : problem.k_scale.at(scale_head, 0)))) {}

  //| ## Scales, queries
  //|
  //| Without block scales nothing changes from tile to tile, and the compiler sees it: the function returns
  //| constants. With them, 128 keys share a scale. K's goes into the factor. V's goes into P, as its log2,
  //| and `inverse` removes it from the row sum (`softmax.cuh`).
  /// Returns the scales of a tile of keys.
  __device__ __forceinline__ TileScale scale_of(int tile) const {
    if constexpr (!Traits::kBlockScales) return {factor, 0.0f, 1.0f};
    static_assert(!Traits::kBlockScales || 128 % kKeys == 0, "a tile of keys has one scale");
    const int block = tile * kKeys / 128;
    const float v_scale = problem.v_scale.at(scale_head, block);
    return {not_zero(factor * problem.k_scale.at(scale_head, block)), __log2f(v_scale), 1 / v_scale};
  }

  //| With queries in registers, they are read from shared memory once per tile of queries instead of once per
  //| tile of keys, and their place is free at once. At d = 256 no registers are left for them, and the place
  //| is free only after the last scores.
  /// Waits for the queries.
  __device__ __forceinline__ void take_queries(uint32_t parity) {
    mbarrier_wait(&shared.barriers.q_full[number], parity);
    if constexpr (Traits::kQueriesInRegisters)
      read_queries<kHeadDim>(q, shared.q[number], threadIdx.x / 32 % kWarpsPerWarpgroup * kRowsPerWarp);
    else
      q = shared.q[number].descriptor();
  }

  //| If keys have means, each row of queries is multiplied by them (`epilogue.cuh`), while the tensor cores
  //| compute the first scores. After that, no thread needs the queries in shared memory.
  /// Uses the queries in the threads themselves.
  __device__ __forceinline__ void use_queries(const Means<kHeadDim>& means) {
    if (problem.k_mean != nullptr)
      put_by_key_means(shared.shift[number], shared.q[number], query - first_query, means.k, query_factor);
    if constexpr (Traits::kQueriesInRegisters) {
      __syncwarp();  // all lanes have read the queries
      release_queries(shared, number);
    }
  }

  //| ## The two products
  //|
  //| Both are issued by descriptors that point at the stage, as in chapter 5. `tiles.cuh` has the
  //| differences: a product sums 32 elements instead of 16, and the tile of V has columns of V as its rows,
  //| since it is transposed.
  __device__ __forceinline__ void issue_next_scores() {
    issue_scores<kHeadDim, kKeys>(scores, q, wgmma_advance(keys, key.stage * sizeof(shared.keys.tile[0])));
  }
  __device__ __forceinline__ void issue_next_values(float (&output)[kHeadDim / 2]) {
    if constexpr (Traits::kSumsByProduct) issue_row_sums<kKeys>(sums, p, shared.ones.descriptor());
    issue_accumulate<typename Shared<Traits>::Values, kHeadDim, kKeys>(
        output, p, wgmma_advance(values, value.stage * sizeof(shared.transposed.tile[0])));
  }

  //| After the wait each product's stage is released: that of K to TMA, that of the transposed V to the
  //| transposers. Queries in registers are operands of a product in flight, so they are pinned like the
  //| results.
  /// Called when the scores are complete: their queries may be overwritten.
  __device__ __forceinline__ void pin_scores() {
    wgmma_pin(scores);
    if constexpr (Traits::kQueriesInRegisters) wgmma_pin(q);
  }

  /// Called when the scores at `key` are done: the keys' stage is released.
  __device__ __forceinline__ void scores_done(int tile) {
    release(shared.keys, key);
    key.advance();
    if (!Traits::kQueriesInRegisters && tile == 0) release_queries(shared, number);
  }
  __device__ __forceinline__ void values_done() {
    release(shared.transposed, value);
    value.advance();
  }

  //| The softmax turns scores into probabilities times 2^kOffset, in place.
  template <bool kMasked, bool kLazy>
  __device__ __forceinline__ bool to_probabilities(float (&correction)[2], const TileScale& scale) {
    return softmax<kMasked, kLazy, Traits>(scores, rows, correction, scale);
  }

  /// Rounds the probabilities to P, in e4m3.
  __device__ __forceinline__ void to_operand() {
    if constexpr (Traits::kLine)
      take_encodings(p, scores);
    else
      round_to_fragments(p, scores);
  }

  //| Row sums from a product arrive with P V, one tile after the maximum that they belong to. So they are
  //| added first, and then corrected together with the earlier sums.
  /// Called when P V is done, and with it the sums of the same tile.
  __device__ __forceinline__ void take_sums(const float (&correction)[2]) {
    if constexpr (Traits::kSumsByProduct) {
      wgmma_pin(sums);
#pragma unroll
      for (int r = 0; r < 2; ++r) rows.sum[r] = (rows.sum[r] + sums[2 * r]) * correction[r];
    }
  }

  /// Resets maxima and sums.
  __device__ __forceinline__ void begin_rows() {
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
    rows = Rows::none();
  }

  //| ## Begin, step, end
  //|
  //| This is chapter 5's step 5 again, piece by piece; read that first. The scales of a tile are loaded at
  //| the very start, so that they have arrived when the softmax needs them.
  /// Computes the first scores of a query tile.
  __device__ __forceinline__ void begin(int tile, const Means<kHeadDim>& means) {
    const TileScale scale = scale_of(tile);
    wait_full(shared.keys, key);
    wgmma_fence();
    issue_next_scores();
    use_queries(means);
    if constexpr (Traits::kPromoteTiles > 0) shared.running[number].clear();
    wgmma_wait<0>();
    pin_scores();
    scores_done(tile);
    if (needs_mask(problem, first_query, tile * kKeys, kKeys)) mask(scores, problem, query, tile * kKeys);
    begin_rows();
    float correction[2];
    to_probabilities<true, false>(correction, scale);
    to_operand();
  }

  //| The two waits for tiles use two pipelines. If the transposers are late, only the second one waits,
  //| and the scores are already running.
  /// Computes the scores of `tile`, and P V of the tile before it in the loop, tile + 1.
  template <bool kMasked>
  __device__ __forceinline__ void step(int tile) {
    const TileScale scale = scale_of(tile);
    wait_full(shared.keys, key);
    take_turn<Traits>(number);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_next_scores();
    wait_full(shared.transposed, value);
    wgmma_fence();
    issue_next_values(output);
    pass_turn<Traits>(number);

    //| Step 1 waits for both products together. From step 2 on, maxima may be taken while the product with V
    //| still runs (in step 2, nvcc waits after the first few). The mask hides keys that do not exist, or that
    //| the query must not see. TMA fills the former with zeros, and a score of 0 would count.
    if constexpr (!Traits::kOverlap) {
      wgmma_wait<0>();  // both products are done
      wgmma_pin(output);
      wgmma_pin(p);
      values_done();
    } else {
      wgmma_wait<1>();  // the scores are done; P V still runs
    }
    pin_scores();
    scores_done(tile);
    if constexpr (kMasked) {
      if (Traits::kSplitLoops || needs_mask(problem, first_query, tile * kKeys, kKeys))
        mask(scores, problem, query, tile * kKeys);
    }
    float correction[2];
    //| The new P may be written, and O rescaled, only when the product that reads the old P is done. Rounding
    //| to e4m3 happens here: four probabilities per register, in the thread's own order.
    const bool rescale = to_probabilities<kMasked, Traits::kLazy>(correction, scale);
    if constexpr (Traits::kOverlap) {
      wgmma_wait<0>();  // P V is done: P may be overwritten, O rescaled
      wgmma_pin(output);
      wgmma_pin(p);
      take_sums(correction);
      values_done();
    }
    to_operand();
    if (!Traits::kLazy || rescale) {
      rescale_rows(output, correction);
      if constexpr (Traits::kPromoteTiles > 0) raised[0] *= correction[0], raised[1] *= correction[1];
    }
  }

  //| After the loop one product with V is left.
  /// Computes the last P V of a query tile.
  __device__ __forceinline__ void end() {
    wait_full(shared.transposed, value);
    take_turn<Traits>(number);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_next_values(output);
    pass_turn<Traits>(number);
    wgmma_wait<0>();
    wgmma_pin(output);
    wgmma_pin(p);
    take_sums({1.0f, 1.0f});
    values_done();
  }

  //| ## One tile of queries
  //|
  //| Masked tiles come first, unmasked ones after, as in chapter 5.
  /// Processes a query tile whose last query sees `key_tiles` key tiles.
  __device__ __forceinline__ void attend(int key_tiles, const Means<kHeadDim>& means) {
    begin(key_tiles - 1, means);
    int tile = key_tiles - 2;
    if constexpr (Traits::kCausal && Traits::kSplitLoops) {
      const int unmasked = (problem.last_key(first_query) + 1) / kKeys;  // tiles that all rows see in full
#pragma unroll 1
      for (; tile >= max(unmasked, 0); --tile) step<true>(tile);
    }
    //| In step 9 a second loop around this one promotes: after every few tiles O moves to the running sums.
    //| The inner loop is step 7's, except for the corrections.
    constexpr int kTiles = Traits::kPromoteTiles;
    constexpr bool kMasked = Traits::kCausal && !Traits::kSplitLoops;
    if constexpr (kTiles == 0) {
#pragma unroll 1
      for (; tile >= 0; --tile) step<kMasked>(tile);
    } else {
      while (tile >= 0) {
#pragma unroll 1
        do step<kMasked>(tile);
        while (tile-- % kTiles != 0);
        if (tile < 0) break;
        shared.running[number].template add_to<true>(output, raised);
        raised[0] = raised[1] = 1;
      }
    }
    end();
    if constexpr (kTiles > 0) shared.running[number].template add_to<false>(output, raised);
  }
};

//| ## The kernel

//| The kernel sets up the barriers of three pipelines, of the broadcast, of queries and of outputs, assigns
//| the roles, and lets each consumer process tile after tile.
/// Computes attention for the tiles of `order` that this block takes.
template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1) attend(
    const __grid_constant__ CUtensorMap q_map,       // [batch, heads, panels, seqlen_q, panel]
    const __grid_constant__ CUtensorMap k_map,       // [batch, kv heads, panels, seqlen_k, panel]
    const __grid_constant__ CUtensorMap v_map,       // [batch, kv heads, panels, seqlen_k, panel]
    const __grid_constant__ CUtensorMap output_map,  // [batch, heads, panels, seqlen_q, 64], for kStoreByTma
    __nv_bfloat16* o,                                // [batch, heads, seqlen_q, head_dim], strided
    float* lse,                                      // [batch, heads, seqlen_q]
    Problem problem, TileOrder order,
    int* counter,               // Schedule::dynamic_persistent: 0 at the start
    TransposedValues values) {  // for kTransposeOnce
  constexpr int kConsumers = Traits::kConsumers, kRows = kConsumers * kRowsPerWarpgroup;
  static_assert(sizeof(Shared<Traits>) <= kMaxSharedBytes,
                "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared<Traits>>();
  if (threadIdx.x == 0) {
    //| Each pipeline needs the number of arrivals at its two barriers: one thread, and bytes, if TMA fills;
    //| one lane per warp if warps fill or empty.
    initialise(shared.keys, 1, kConsumers * kWarpsPerWarpgroup, "keys full", "keys empty");
    initialise(shared.raw, 1, kTransposers, "raw full", "raw empty");
    initialise(shared.transposed, Traits::kTransposeOnce ? 1 : kTransposers, kConsumers * kWarpsPerWarpgroup,
               "transposed full", "transposed empty");
    initialise(shared.broadcast,
               kConsumers * kWarpsPerWarpgroup + (Traits::kTransposeOnce ? 0 : kTransposers) + 1);
    initialise(shared.barriers);
    fence_mbarrier_init();
  }
  //| All threads write the tile of ones. A version that transposes V once may have begun while its counters
  //| were still being set to 0: up to here it has touched only its own shared memory.
  if constexpr (Traits::kSumsByProduct) {
    for (int i = threadIdx.x; i < int(sizeof(shared.ones)); i += Traits::kThreads)
      reinterpret_cast<unsigned char*>(&shared.ones)[i] = kOne;
    fence_proxy_async();  // this thread's writes become visible to wgmma
  }
  if constexpr (Traits::kTransposeOnce) wait_for_launch_before();  // that launch sets the counters to 0
  __syncthreads();                                                 // the barriers are ready, and the ones

  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;

  //| The producer's four warps: one thread loads keys and values, one loads queries and stores outputs, and
  //| all lanes of the last two warps transpose.
  if (warpgroup == 0) {
    setmaxnreg_dec<Traits::kProducerRegisters>();
    const int transposer = warp - (kWarpsPerWarpgroup - kTransposers);  // negative for other warps
    if constexpr (Traits::kTransposeOnce) {
      if (threadIdx.x == 0) load_transposed_tiles(shared, k_map, values, problem, order, counter);
      if (transposer >= 0) transpose_for_all(shared, v_map, problem, values, transposer);
    } else {
      if (threadIdx.x == 0) load_tiles(shared, k_map, v_map, problem, order, counter);
      if (transposer >= 0) transpose_values(shared, problem, transposer);
    }
    if (threadIdx.x == 32) serve_consumers(shared, q_map, output_map, problem);
    return;
  }

  setmaxnreg_inc<Traits::kConsumerRegisters>();
  const int number = warpgroup - 1;
  const auto row_of_thread = [&] {
    return int(warp % kWarpsPerWarpgroup * kRowsPerWarp + threadIdx.x % 32 / 4);
  };
  const int kept_row = row_of_thread();  // row in the warpgroup
  open_turns<Traits>(number);

  //| A consumer takes a tile of queries from the broadcast, attends to it and hands over its output. V's
  //| scale is applied at the end, where O is divided by the row sums; with block scales P already includes
  //| it.
  PipelineState<kBroadcastStages> next;
  PipelineState<Traits::kKeyStages> key;
  PipelineState<Traits::kTransposedStages> value;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkTile work = next_tile<true>(shared.broadcast, next);
    if (work.query_tile < 0) return;
    const int first_query = work.query_tile * kRows + number * kRowsPerWarpgroup;
    //| Step 9 has no register in which to keep the row. Because of the shuffle, which yields the row that the
    //| thread already has, ptxas computes it again for every tile of queries.
    const int row =
        Traits::kPromoteTiles > 0 ? __shfl_sync(kWholeWarp, row_of_thread(), threadIdx.x % 32) : kept_row;
    Consumer<Traits> consumer(shared, problem, key, value, number, work.head, first_query, first_query + row);
    const float v_scale = Traits::kBlockScales ? 1.0f : problem.v_scale.at(consumer.scale_head, 0);
    consumer.take_queries(parity);
    const Means<Traits::kHeadDim>& means = shared.means[number][parity];
    const int key_tiles = key_tiles_of<Traits>(problem, work);
    consumer.attend(key_tiles, means);
    finish_rows<Traits::kOffset, Traits::kSumsByProduct>(
        consumer.output, consumer.rows, problem, lse, work.head, consumer.query, v_scale,
        problem.k_mean ? &shared.shift[number][row] : nullptr, problem.v_mean ? means.v : nullptr);
    //| The output is stored as in chapter 5: through shared memory and TMA if there is space, otherwise
    //| straight from registers. The shuffle yields the row that the thread already has, but ptxas does not
    //| know that. Without it, ptxas computes the addresses of all pieces before the first tile and keeps
    //| them, eight registers, through every loop.
    if constexpr (Traits::kStoreByTma) {
      hand_over_output(shared, number, parity, [&] {
        const int same_row = __shfl_sync(kWholeWarp, row, threadIdx.x % 32);
        store_to_smem<Traits::kHeadDim>(shared.output[number], consumer.output, same_row);
      });
    } else {
      store_from_registers<Traits::kHeadDim>(consumer.output, problem, o, work.head, consumer.query);
    }
  }
}

}  // namespace flashbook::fp8
