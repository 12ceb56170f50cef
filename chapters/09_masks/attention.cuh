//| # The kernel of steps 1 to 5
//|
//| This is step 5 of chapter 5 with a policy (`problem.cuh`) instead of its causal mask. A warp of the
//| producer broadcasts how many tiles of keys are partial, which come first, and how many are full
//| (`producer.cuh`).
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are
//| partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/partial_tile.cuh"
#include "chapters/09_masks/producer.cuh"
#include "common/hopper/epilogue.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/softmax.h"
#include "common/hopper/tiles.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::masks {

//| ## A consumer
//|
//| It holds the same state as in chapter 5: references to shared memory, three descriptors, and in registers
//| the output, the scores, P, and the maxima and sums of its rows. `work` is new: a reference to the tile of
//| queries in shared memory. Reading it again costs a load now and then, and no registers in the loop.
/// A thread of a consumer, for one tile of queries.
template <typename T, typename Traits, typename Policy>
struct Consumer {
  static constexpr int kHeadDim = Traits::kHeadDim, kValueDim = Traits::kValueDim, kKeys = Traits::kKeys;
  static constexpr uint32_t kTileBytes = sizeof(typename BlockShared<T, Traits>::KeyTile);
  static constexpr uint32_t kValueBytes = sizeof(typename BlockShared<T, Traits>::ValueTile);

  BlockShared<T, Traits>& shared;
  const Problem& problem;
  const Policy& policy;
  PipelineState<Traits::kStages>& state;            ///< place in the pipeline; continues from tile to tile
  const PipelineState<Traits::kQueryPlaces> place;  ///< place of its queries, and later of its output
  const int number;                                 ///< index of this consumer
  const int query;                                  ///< the first of this thread's two rows in the sequence
  const Work& work;
  const uint64_t q, keys, values;  ///< descriptors of its queries, and of stage 0 as K and as V
  float output[kValueDim / 2], scores[kKeys / 2];
  Fragments<kKeys> p;
  LazyRows rows;

  //| Descriptors are recomputed for every tile of queries, from constants, as in chapter 5.
  __device__ __forceinline__ Consumer(BlockShared<T, Traits>& shared, const Problem& problem,
                                      const Policy& policy, PipelineState<Traits::kStages>& state,
                                      const PipelineState<Traits::kQueryPlaces>& place, int number, int query,
                                      const Work& work)
      : shared(shared),
        problem(problem),
        policy(policy),
        state(state),
        place(place),
        number(number),
        query(query),
        work(work),
        q(k_major(shared.q[place.stage][number])),
        keys(k_major(shared.pipeline.tile[0])),
        values(mn_major(shared.values().tile[0])) {}

  //| Rows past the end of the sequence see the same keys as the last row. They are never stored, so policies
  //| need not handle them.
  /// Row `r` of the thread, 0 or 1, in the sequence.
  __device__ __forceinline__ int row_query(int r) const {
    return min(query + 8 * r, work.sequence.queries - 1);
  }

  //| Most tiles of queries lie within one document. Then `work.document` holds it, and no row searches for
  //| its own. One branch covers both rows, and another decides whether to check for a prefix.
  /// Returns the policy's answers for a partial tile. `document` is the work's document.
  __device__ __forceinline__ Answers<kKeys> ask(int first_key, const Sequence& document) const {
    Answers<kKeys> answers{};
    const auto see = [&](const auto& row_of) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        answers.seen[r] |=
            columns_seen<kKeys / 4>(row_of(row_query(r)), first_key + 2 * int(threadIdx.x % 4));
    };
    const auto search = [&](int query) { return policy.row(work, query); };
    if constexpr (Policy::kExtras.documents) {
      if (document.queries <= 0) {
        see(search);
      } else {
        see([&](int query) { return policy.row_in(document, query).own(); });
        if (policy.has_prefix()) see([&](int query) { return policy.row_in(document, query).prefix(); });
      }
    } else {
      see(search);
    }
    if constexpr (Policy::kExtras.hidden_by_key)
      ask_keys(answers, policy.hidden(work, first_key), query - int(threadIdx.x % 32 / 4));
    return answers;
  }

  //| The function is applied before the mask, so it never receives the -inf of a hidden score.
  /// Applies the policy to a tile's scores.
  template <bool kMasked>
  __device__ __forceinline__ void apply(int first_key, const Answers<kKeys>& answers) {
    if constexpr (decltype(policy.score)::kExtras.changes) {
      change(
          scores, [&](int r) { return policy.score.row(work, row_query(r)); }, first_key);
    }
    if constexpr (kMasked) {
      hide(scores, answers);
      if constexpr (Policy::kExtras.hidden_by_key) hide_by_key(scores, answers);
    }
  }

  //| Dropout comes after the softmax has taken its sums, so these include all probabilities.
  /// Applies dropout to a tile's probabilities.
  __device__ __forceinline__ void drop(int first_key) {
    if constexpr (decltype(policy.score)::kExtras.drops)
      apply_dropout(
          scores, policy.score.dropout, work.head,
          [&](int r) { return policy.score.query_of(work, row_query(r)); }, first_key);
  }

  //| `shared.first_key` is a word next to each stage. It is read between `full` and the release of the stage.
  //| In a full tile, only a score function that takes the key needs it.
  /// Returns the first key of the tile in the stage `at`, if it is needed.
  template <bool kMasked>
  __device__ __forceinline__ int first_key(const PipelineState<Traits::kStages>& at) const {
    if constexpr (!kMasked && !decltype(policy.score)::kExtras.keys) return 0;
    const int key = shared.first_key[at.stage];
    __syncwarp();  // all lanes have read before one of them releases the stage
    return key;
  }

  __device__ __forceinline__ float scale_log2() const {
    if constexpr (decltype(policy.score)::kExtras.changes)
      return policy.score.scale_log2;
    else
      return problem.scale_log2;
  }

  //| If the output reuses the queries' place, the thread that stores the output releases it.
  /// Releases the queries after this warp's last scores, if that frees their place.
  __device__ __forceinline__ void release_queries() const {
    if constexpr (!Traits::kStoreByTma)
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.barriers.q_empty[place.stage][number]);
  }

  //| ### Begin, step, end
  //|
  //| These are as in chapter 5. If a version uses pingpong (`Traits`), each step takes a turn, and so do the
  //| last values. All consumers of a block see the same tiles, so all take equally many turns.
  //|
  //| The first scores are computed alone, each step computes the scores of one tile and the values of the
  //| previous one, and the last values are again computed alone. Partial tiles come first, so the first tile
  //| is masked unless none is partial.
  /// Computes a query tile's first scores. `masked`: the tile is partial; `is_last`: there are no others.
  __device__ __forceinline__ void begin(bool masked, bool is_last) {
    const Sequence document = work.document;
    wait_full(shared.pipeline, state);
    const int key = first_key<true>(state);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, state.stage * kTileBytes));
    //| The mask is evaluated while the tensor cores compute the scores.
    Answers<kKeys> answers{};
    if (masked) answers = ask(key, document);
    wgmma_wait<0>();
    wgmma_pin(scores);
    release(shared.pipeline, state);
    if (is_last) release_queries();
    state.advance();
    if (masked)
      apply<true>(key, answers);
    else
      apply<false>(key, answers);
#pragma unroll
    for (int i = 0; i < kValueDim / 2; ++i) output[i] = 0.0f;
    rows = LazyRows::none();
    float correction[2];
    softmax(scores, rows, correction, scale_log2());
    drop(key);
    round_to_fragments<T>(p, scores);
  }

  //| A step issues the scores of its tile and the values of the previous one. The mask and the softmax run
  //| while the tensor cores work on the values. `kMasked` makes two functions; the one for full tiles has no
  //| code for a mask.
  /// Computes the scores of a tile, over the values of the previous tile.
  template <bool kMasked>
  __device__ __forceinline__ void step(bool is_last) {
    const auto [k_state, v_state] = next_places<Traits>(state);
    wait_full(shared.pipeline, k_state);
    take_turn<Traits>(number);
    const int key = first_key<kMasked>(k_state);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, k_state.stage * kTileBytes));
    wait_full(shared.values(), v_state);
    wgmma_fence();
    issue_accumulate<T>(output, p, wgmma_advance(values, v_state.stage * kValueBytes));
    pass_turn<Traits>(number);
    Answers<kKeys> answers{};
    if constexpr (kMasked) answers = ask(key, work.document);

    //| The keys' stage is free as soon as the scores are computed. If there is only one place for queries, it
    //| is free after their last scores.
    wgmma_wait<1>();  // the scores are done; the product with V still runs
    wgmma_pin(scores);
    release(shared.pipeline, k_state);
    if (is_last) release_queries();
    apply<kMasked>(key, answers);
    float correction[2];
    const bool rescale = softmax_lazily(scores, rows, correction, scale_log2());
    drop(key);

    //| Only now may P be overwritten and O rescaled; O is rescaled if a maximum has risen by more than 8 log2
    //| units (chapter 5).
    wgmma_wait<0>();  // the product with V is done: P may be overwritten, O rescaled
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared.values(), v_state);
    round_to_fragments<T>(p, scores);
    if (rescale) rescale_rows(output, correction);
  }

  //| ### One tile of queries
  //|
  //| A tile of queries that sees nothing has no tile of keys. Its queries have been loaded anyway, and their
  //| place must be released: by its output, which is zeros, or at once.
  /// Processes a query tile with `partial` partial and `full` full tiles of keys.
  __device__ __forceinline__ void attend(int partial, int full) {
    int left = partial + full;
    mbarrier_wait(&shared.barriers.q_full[place.stage][number], place.phase);  // the queries have landed
    if (left == 0) {
      __syncwarp();  // all lanes have waited: after lane 0 arrives, the next queries may land
      release_queries();
#pragma unroll
      for (int i = 0; i < kValueDim / 2; ++i) output[i] = 0.0f;
      rows = LazyRows::none();
      return;
    }
    //| `left` counts the tiles that have not begun. While it exceeds the number of full tiles, the next tile
    //| is partial. So the first loop counts down to that number, which it rereads, and the second continues
    //| to 0.
    begin(partial > 0, --left == 0);
    if (partial > 1) {
#pragma unroll 1
      do step<true>(--left == 0);
      while (left > work.full);
    }
#pragma unroll 1
    while (left > 0) step<false>(--left == 0);
    if constexpr (Traits::kTwoRings) {
      PipelineState<Traits::kStages> last = state.previous();
      last_values<T, Traits>(output, p, values, shared.values(), last, number);
    } else {
      last_values<T, Traits>(output, p, values, shared.pipeline, state, number);
    }
  }

  //| ### The output, where the queries were
  //|
  //| A product reads the queries of all four warps, so before a warp overwrites them, all four must have
  //| their last scores. They do: each has since taken the turn of the last values, and a turn is a barrier of
  //| the consumer's threads. Without tiles of keys there are no products.
  /// Hands this warp's rows of the output over to the thread that stores.
  __device__ __forceinline__ void hand_over(int first_row) {
    static_assert(Traits::kPingpong,
                  "the turn of the last values keeps the output from queries that are still read");
    store_to_smem(shared.q[place.stage][number], output, first_row);
    __syncwarp();  // all lanes have written
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.barriers.output_full[place.stage][number]);
  }

  //| ### From sums to results
  //|
  //| The book's other kernels divide exactly, but the machine code of an exact division has a branch.
  //| `__fdividef` has none, so the divisions for both rows overlap. It is accurate to 2 units in
  //| the last place of float32, and the output is rounded to 16 bits.
  /// Divides the output by its rows' sums.
  __device__ __forceinline__ void divide() {
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) rows.sum[r] = quad_sum(rows.sum[r]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      inverse[r] = __fdividef(1.0f, rows.sum[r]);
      if constexpr (decltype(policy.score)::kExtras.drops) inverse[r] *= policy.score.dropout.factor;
      if (!(rows.sum[r] > 0)) inverse[r] = 0;  // a row that sees no key has O = 0
    }
    rescale_rows(output, inverse);
  }

  //| The log-sum-exp is stored as `[batch, heads, seqlen_q]`, with or without documents. A score function may
  //| have left out a constant (`step5_mask_functions.cuh`), which is added here. It is stored last, when the
  //| output is already on its way.
  /// Stores the rows' log-sum-exp.
  __device__ __forceinline__ void store_sums(float* lse) const {  // [batch, heads, seqlen_q]
    if (threadIdx.x % 4 != 0) return;
    float* const first =
        lse +
        head_of_row(policy, int64_t(work.head.batch) * problem.heads + work.head.head) * problem.seqlen_q +
        work.sequence.first_query;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = rows.sum[r];
      float value = sum > 0 ? (rows.max[r] * scale_log2() + __log2f(sum)) * kLn2 : -INFINITY;
      if constexpr (decltype(policy.score)::kExtras.changes) value += policy.score.score_offset;
      const int row = query + 8 * r;
      if (row < work.sequence.queries) first[row] = value;
    }
  }
};

//| ## The kernel
//|
//| Roles are divided as in chapter 5. In the producer's warpgroup one thread streams keys and values, one
//| loads queries, one stores outputs, each in its own warp, and the fourth warp decides. The policy is a
//| kernel parameter like the problem, in constant memory.
/// Computes attention for the tiles of queries that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Traits, typename Policy>
__global__ void __launch_bounds__(Traits::kThreads, 1) masked(
    const __grid_constant__ TileMap q_map,       // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ TileMap k_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ TileMap v_map,       // [batch, kv heads, panels, seqlen_k, 64]; may be narrower
    const __grid_constant__ TileMap output_map,  // [batch, heads, panels, seqlen_q, 64], for kStoreByTma
    T* o,                                        // [batch, heads, seqlen_q, value_dim], strided
    float* lse,                                  // [batch, heads, seqlen_q]
    const __grid_constant__ Problem problem, const __grid_constant__ Policy policy,
    int* counter) {  // 0 at the start, and at the end
  static_assert(names_its_extras<Policy>(), "a policy's extras and its functions differ");
  using Shared = BlockShared<T, Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) initialise(shared, Policy::kExtras.producer ? 2 : 1);
  if constexpr (Policy::kExtras.prepared)
    wait_for_launch_before();  // the previous launch makes a plan, or classifies tiles
  __syncthreads();             // the barriers are ready

  //| The producer gives up registers, and the consumers take them. The 32 or 40 registers that remain per
  //| thread (`Traits`) are enough to classify tiles.
  const int warp = warp_of_block(), warpgroup = warp / kWarpsPerWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<Traits::kProducerRegisters>();
    if constexpr (Policy::kExtras.producer) {
      policy.template produce<Traits>(shared, warp, q_map, k_map, v_map, problem);
    } else {
      if (threadIdx.x == 0) produce_keys<Traits>(shared, k_map, v_map, problem);
      if (warp == 1) produce_queries<Traits>(shared, q_map, problem, policy);
    }
    if constexpr (Traits::kStoreByTma)
      if (threadIdx.x == 64) store_outputs<Traits>(shared, output_map, problem.o_map_strides, policy);
    if (warp == 3) decide<Traits>(shared, problem, policy, counter);
    return;
  }

  setmaxnreg_inc<Traits::kConsumerRegisters>();
  const int number = warpgroup - 1;
  const int row = warp % kWarpsPerWarpgroup * kRowsPerWarp;  // the warp's first row in the warpgroup
  open_turns<Traits>(number);

  //| A consumer repeats: take the next work, attend, hand over the output, release the work. A negative first
  //| query ends the loop. At d = 256 outputs do not fit in shared memory, so they are stored from registers,
  //| row by row, as far as the sequence has rows.
  PipelineState<kWorkStages> next;
  PipelineState<Traits::kStages> state;
  for (PipelineState<Traits::kQueryPlaces> place;; place.advance()) {
    wait_full(shared.work, next);
    const Work& work = shared.work.tile[next.stage];
    const int partial = work.partial, full = work.full;
    if (work.first_query < 0) return;
    const int query = work.first_query + number * queries_among(policy, kRowsPerWarpgroup) +
                      query_of_row(policy, row + int(threadIdx.x % 32 / 4));
    Consumer<T, Traits, Policy> consumer(shared, problem, policy, state, place, number, query, work);
    consumer.attend(partial, full);
    //| As in chapter 5, the output goes through shared memory and TMA, or straight from registers.
    consumer.divide();
    if constexpr (Traits::kStoreByTma) {
      consumer.hand_over(row);
    } else {
      T* const first_row = o + work.head.batch * problem.o_strides.batch +
                           head_of_row(policy, work.head.head) * problem.o_strides.head +
                           work.sequence.first_query * problem.o_strides.row;
      store_from_registers(consumer.output, first_row, problem.o_strides.row, query, work.sequence.queries,
                           1.0f, problem.head_dim);
    }
    consumer.store_sums(lse);
    __syncwarp();  // all lanes have read what they need of the work
    release(shared.work, next);
    next.advance();
  }
}

}  // namespace flashbook::masks
