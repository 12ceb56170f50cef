//| # The kernel of steps 1 to 5
//|
//| This is step 5 of chapter 5, with a policy in the place of its causal mask. The producer tells a consumer how many tiles of
//| keys are partial and how many are full (`producer.cuh`), and sends the full ones first.
//|
//| ![Four masks in tiles: most tiles are skipped, some are full, and those where a mask cuts are partial](../../docs/figures/mask_tiles.svg)
#pragma once
#include "chapters/09_masks/block.cuh"
#include "chapters/09_masks/producer.cuh"
#include "common/attention/dropout.h"
#include "common/hopper/epilogue.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/products.h"
#include "common/hopper/softmax.h"
#include "common/ptx/setmaxnreg.h"

namespace flashbook::masks {

//| ## The mask of a partial tile
//|
//| A thread has two rows of a tile, and asks the policy once for each. The answer is a small value that knows which keys the
//| row sees. Of every 8 columns of a row the thread has two neighbours.
//|
//| A row that compares (step 3) is asked score by score. It counts keys from the thread's first column, so that each
//| comparison is with a constant. A row that reads memory is asked in a loop of its own first, which makes a word of bits of
//| the answers. Unrolled beside the scores, 64 loads would wait in 64 registers, and at d = 64 and d = 256 none are left.

/// Column `i` of those that a thread has of a tile.
__host__ __device__ constexpr int column_of(int i) { return i / 2 * 8 + i % 2; }

/// Bit i: whether the row sees the thread's column i. `thread_key` is its first.
template <int kColumns, typename Row>
__device__ __forceinline__ uint32_t columns_seen(const Row& row, int thread_key) {
  uint32_t bits = 0;
#pragma unroll 2
  for (int i = 0; i < kColumns; ++i) bits |= uint32_t(row.sees(thread_key + column_of(i))) << i;
  return bits;
}

//| Float i of the scores is column i / 4 * 2 + i % 2 of row i / 2 % 2.
/// Scores of keys that a row does not see become -inf. `row_of(r)` is the thread's row r, `first_key` the
/// tile's first.
template <int kFloats, typename RowOf>
__device__ __forceinline__ void hide(float (&scores)[kFloats], const RowOf& row_of, int first_key) {
  using Row = decltype(row_of(0));
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
  if constexpr (Row::kByComparison) {
    const Row of_thread[2] = {row_of(0).from(thread_key), row_of(1).from(thread_key)};
#pragma unroll
    for (int i = 0; i < kFloats; ++i)
      if (!of_thread[hopper::row_of(i)].sees(column_of(i / 4 * 2 + i % 2))) scores[i] = -INFINITY;
  } else {  // one row after the other: each is gone when its bits are there
    const uint32_t seen[2] = {columns_seen<kFloats / 2>(row_of(0), thread_key),
                              columns_seen<kFloats / 2>(row_of(1), thread_key)};
#pragma unroll
    for (int i = 0; i < kFloats; ++i)
      if ((seen[hopper::row_of(i)] >> (i / 4 * 2 + i % 2) & 1) == 0) scores[i] = -INFINITY;
  }
}

//| FlashMask (step 4) says for each *key* which queries it hides. So the warp turns the question round: a lane takes neighbouring
//| keys, as if it had their columns, and makes 16 bits of each, one for each row of the warp. Two keys are a word. The loads are
//| issued as soon as the tile's first key is known, so they travel while the tensor cores compute the scores.
/// Which rows of a warp each key of a tile hides.
template <int kKeys>
struct HiddenByKey {
  static constexpr int kOfWords = 64;  ///< keys that a word of each lane holds
  uint32_t of_keys[kKeys / kOfWords];  ///< of keys 64 i + 2 lane, and of the next one in the upper half

  /// `hidden` is the tile's, `first_row` the warp's first query.
  template <typename Hidden>
  __device__ __forceinline__ HiddenByKey(const Hidden* hidden, int first_row) {
#pragma unroll
    for (int i = 0; i < kKeys / kOfWords; ++i) {
      const Hidden* const pair = hidden + kOfWords * i + 2 * int(threadIdx.x % 32);
      of_keys[i] = pair[0].hidden_rows(first_row) | pair[1].hidden_rows(first_row) << kRowsOfWarp;
    }
  }
};

//| Whoever has the scores of two neighbouring keys gets their word by a shuffle. Its four bits lie at the same places in all
//| lanes, once the word is shifted by the lane's row.
/// Scores of keys that hide their row become -inf. All lanes of a warp.
template <int kFloats>
__device__ __forceinline__ void hide(float (&scores)[kFloats], const HiddenByKey<2 * kFloats>& hidden) {
  const int lane = int(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < kFloats / 4; ++j) {  // of every 8 columns, the thread has two
    const uint32_t bits = __shfl_sync(kWholeWarp, hidden.of_keys[j / 8], j % 8 * 4 + lane % 4) >> lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (bits >> (i % 2 * kRowsOfWarp + i / 2 * 8) & 1) scores[4 * j + i] = -INFINITY;
  }
}

//| A function on scores counts keys from the same column, and is applied to one row after the other. If it reads memory for
//| each score, the compiler would issue all loads first, each with a register to land in. It moves no load across a
//| `__syncwarp`, so at most eight are under way.
/// Scores become what the function makes of them. `row_of(r)` is the function for the thread's row r.
template <int kFloats, typename RowOf>
__device__ __forceinline__ void change(float (&scores)[kFloats], const RowOf& row_of, int first_key) {
  const int thread_key = first_key + 2 * int(threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto of_row = row_of(r).from(thread_key);
#pragma unroll
    for (int i = 0; i < kFloats / 2; ++i) {
      float& score = scores[i / 2 * 4 + 2 * r + i % 2];
      score = of_row(score, column_of(i));
      if constexpr (decltype(of_row)::kReadsMemory)
        if (i % 8 == 7) __syncwarp();  // closes no hazard: see above
    }
  }
}

//| Dropout goes by 32 columns of a row. This thread has eight of them, and one call gives the random bits of all eight.
/// Probabilities that dropout leaves out become 0. `query_of(r)` is the thread's row r.
template <int kFloats, typename QueryOf>
__device__ __forceinline__ void leave_out(float (&probabilities)[kFloats], const Dropout& dropout,
                                          const Head& head, const QueryOf& query_of, int first_key) {
  constexpr int kBlockFloats = Dropout::kKeysOfBits / 2;  // of both rows
#pragma unroll
  for (int block = 0; block < kFloats / kBlockFloats; ++block)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const PhiloxWords bits = dropout.bits(head.batch, head.head, query_of(r),
                                            first_key + block * Dropout::kKeysOfBits, int(threadIdx.x % 4));
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (!dropout.keeps(bits.word[i / 2], i % 2))
          probabilities[block * kBlockFloats + i / 2 * 4 + 2 * r + i % 2] = 0.0f;
    }
}

//| ## A consumer
//|
//| It holds what chapter 5's holds: references to shared memory, three descriptors, and in registers the output, the scores,
//| P and its rows' maxima and sums. New is `work`, a reference to the tile of queries in shared memory. To read it there again
//| costs a load now and then; to keep it would cost registers in the loop.
/// A thread of a consumer, for one tile of queries.
template <typename T, typename Sizes, typename Policy>
struct Consumer {
  static constexpr int kHeadDim = Sizes::kHeadDim, kKeys = Sizes::kKeys;
  static constexpr uint32_t kTileBytes = sizeof(typename BlockShared<T, Sizes>::KeyTile);

  BlockShared<T, Sizes>& shared;
  const Problem& problem;
  const Policy& policy;
  hopper::PipelineState<Sizes::kStages>& state;  ///< in the pipeline; goes on from tile to tile
  const uint32_t parity;                         ///< of the tiles of queries before this one
  const int number;                              ///< which consumer this is
  const int query;                               ///< the first of this thread's two rows, in the sequence
  const Work& work;
  const uint64_t q, keys, values;  ///< descriptors: its queries, stage 0 as K and as V
  float output[kHeadDim / 2], scores[kKeys / 2];
  hopper::Probabilities<kKeys> p;
  hopper::LazyRows rows;

  //| Descriptors are computed anew for every tile of queries, from constants, as in chapter 5.
  __device__ __forceinline__ Consumer(BlockShared<T, Sizes>& shared, const Problem& problem,
                                      const Policy& policy, hopper::PipelineState<Sizes::kStages>& state,
                                      uint32_t parity, int number, int query, const Work& work)
      : shared(shared),
        problem(problem),
        policy(policy),
        state(state),
        parity(parity),
        number(number),
        query(query),
        work(work),
        q(along_rows(shared.q[number])),
        keys(along_rows(shared.pipeline.tile[0])),
        values(across_rows(shared.pipeline.tile[0])) {}

  //| Turns are chapter 5's pingpong. All consumers of a block see the same tiles, so all take equally many turns, whatever
  //| the mask is.
  __device__ __forceinline__ void take() {
    if constexpr (Sizes::kPingpong) hopper::take_turn<Sizes::kConsumers>(number);
  }
  __device__ __forceinline__ void pass() {
    if constexpr (Sizes::kPingpong) hopper::pass_turn<Sizes::kConsumers>(number);
  }
  __device__ __forceinline__ void release_queries() {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.q_empty[number]);
  }

  //| Rows beyond the end of the sequence see what the last one does: nobody stores them, and no policy need know of them.
  /// Which of the thread's rows `r`, 0 or 1, is in the sequence.
  __device__ __forceinline__ int row_query(int r) const {
    return min(query + 8 * r, work.sequence.queries - 1);
  }

  //| Only FlashMask is asked by key, and only in partial tiles. At d = 256 no register is left while products run: there it is
  //| asked when the scores are there.
  static constexpr bool kByKey = requires(const Policy& p, const Work& w) { p.hidden(w, 0); };
  static constexpr bool kEarly = kHeadDim != 256;
  __device__ __forceinline__ HiddenByKey<kKeys> by_key(int first_key) const {
    return {policy.hidden(work, first_key), query - int(threadIdx.x % 32 / 4)};
  }
  /// What the policy says of the keys of a tile whose scores are under way.
  template <bool kMasked>
  __device__ __forceinline__ auto ask_early(int first_key) const {
    if constexpr (kMasked && kByKey && kEarly)
      return by_key(first_key);
    else
      return Nothing{};
  }

  //| Function first, mask second: so a function never gets the -inf of a hidden score.
  /// What the policy makes of a tile's scores.
  template <bool kMasked, typename Early>
  __device__ __forceinline__ void apply(int first_key, [[maybe_unused]] const Early& early) {
    if constexpr (decltype(policy.score)::kChanges) {
      change(
          scores, [&](int r) { return policy.score.row(work, row_query(r)); }, first_key);
    }
    if constexpr (kMasked) {
      hide(
          scores, [&](int r) { return policy.row(work, row_query(r)); }, first_key);
      if constexpr (kByKey && kEarly)
        hide(scores, early);
      else if constexpr (kByKey)
        hide(scores, by_key(first_key));
    }
  }

  //| Dropout comes after the softmax has taken its sums, so these are the sums of all probabilities.
  /// What the policy leaves of a tile's probabilities.
  __device__ __forceinline__ void drop(int first_key) {
    if constexpr (decltype(policy.score)::kDrops)
      leave_out(
          scores, policy.score.dropout, work.head, [&](int r) { return row_query(r); }, first_key);
  }

  //| `shared.first_key` is a word beside each stage. It is read after `full` says that the stage is there, and before the stage
  //| is given back. A full tile needs it only for a function that asks for keys.
  /// The first key of the tile at `at`, if anybody asks for it.
  template <bool kMasked>
  __device__ __forceinline__ int first_key(const hopper::PipelineState<Sizes::kStages>& at) const {
    if constexpr (!kMasked && !decltype(policy.score)::kAsksForKeys) return 0;
    const int key = shared.first_key[at.stage];
    __syncwarp();  // all lanes have read before one of them gives the stage back
    return key;
  }

  __device__ __forceinline__ float scale_log2() const {
    if constexpr (decltype(policy.score)::kChanges)
      return policy.score.scale_log2;
    else
      return problem.scale_log2;
  }

  //| ### Begin, step, end
  //|
  //| These are chapter 5's. The first scores stand alone, each step has the scores of one tile and the values of the tile
  //| before it, and the last values stand alone.
  /// The first scores of a tile of queries. `is_last`: there are no others.
  __device__ __forceinline__ void begin(bool is_last) {
    wait_full(shared.pipeline, state);
    const int key = first_key<true>(state);
    wgmma_fence();
    hopper::issue_scores<T, kHeadDim, kKeys>(scores, q, wgmma_advance(keys, state.stage * kTileBytes));
    const auto early = ask_early<true>(key);
    wgmma_wait<0>();
    wgmma_pin(scores);
    release(shared.pipeline, state);
    if (is_last) release_queries();
    state.advance();
    if (work.full == 0)
      apply<true>(key, early);
    else
      apply<false>(key, Nothing{});
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
    rows = hopper::LazyRows::none();
    hopper::first_softmax(scores, rows, scale_log2());
    drop(key);
    hopper::round_probabilities<T>(p, scores);
  }

  //| A step issues the scores of its tile and the values of the tile before it. The mask and the softmax run while the tensor
  //| cores work on the values. `kMasked` makes two functions of it; the one for full tiles has no code for a mask.
  /// The scores of a tile, over the values of the tile before it.
  template <bool kMasked>
  __device__ __forceinline__ void step(bool is_last) {
    const hopper::PipelineState<Sizes::kStages> k_state = state;
    state.advance();
    const hopper::PipelineState<Sizes::kStages> v_state = state;
    state.advance();
    wait_full(shared.pipeline, k_state);
    take();
    const int key = first_key<kMasked>(k_state);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    hopper::issue_scores<T, kHeadDim, kKeys>(scores, q, wgmma_advance(keys, k_state.stage * kTileBytes));
    wait_full(shared.pipeline, v_state);
    wgmma_fence();
    hopper::issue_values<T, kHeadDim, kKeys>(output, p, wgmma_advance(values, v_state.stage * kTileBytes));
    pass();

    const auto early = ask_early<kMasked>(key);

    //| The stage of the keys is free as soon as the scores are there. Queries are given back with the last one of them, so that
    //| the next queries come while the softmax still runs.
    wgmma_wait<1>();  // the scores are done; the values still run
    wgmma_pin(scores);
    release(shared.pipeline, k_state);
    if (is_last) release_queries();
    apply<kMasked>(key, early);
    float correction[2];
    const bool rescale = hopper::softmax_lazily(scores, rows, correction, scale_log2());
    drop(key);

    //| Only now may P be overwritten and O rescaled. O is rescaled when a maximum has risen by more than 8 log2 units (chapter 5).
    wgmma_wait<0>();  // the values are done: P may be overwritten, O rescaled
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared.pipeline, v_state);
    hopper::round_probabilities<T>(p, scores);
    if (rescale) hopper::rescale_rows(output, correction);
  }

  //| The last values have no scores beside them. They take a turn as all products do.
  /// The last values of a tile of queries.
  __device__ __forceinline__ void end() {
    wait_full(shared.pipeline, state);
    take();
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    hopper::issue_values<T, kHeadDim, kKeys>(output, p, wgmma_advance(values, state.stage * kTileBytes));
    pass();
    wgmma_wait<0>();
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared.pipeline, state);
    state.advance();
  }

  //| ### One tile of queries
  //|
  //| A tile of queries that sees nothing at all has no tile of keys. Its queries have been loaded all the same, and their place
  //| must be given back.
  /// One tile of queries.
  __device__ __forceinline__ void attend() {
    mbarrier_wait(&shared.q_full[number], parity);
    int left = work.partial + work.full;
    if (left == 0) {
      __syncwarp();  // all lanes have waited: after lane 0's arrival the next queries may come
      release_queries();
#pragma unroll
      for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0f;
      rows = hopper::LazyRows::none();
      return;
    }
    //| `left` counts the tiles that have not begun. While it is above the number of partial tiles, the next tile is a full one:
    //| the first loop goes down to that number, and the second goes on to 0.
    begin(--left == 0);
#pragma unroll 1
    while (left > work.partial) step<false>(--left == 0);
#pragma unroll 1
    while (left > 0) step<true>(--left == 0);
    end();
  }

  //| ### From sums to results
  //|
  //| The log-sum-exp lies as `[batch, heads, seqlen_q]`, documents or not. A score function may have left a constant out
  //| (`mask_functions.cuh`), which comes back here.
  /// Divides the output by its rows' sums and stores their log-sum-exp.
  __device__ __forceinline__ void finish(float* lse) {  // [batch, heads, seqlen_q]
    constexpr float kLn2 = 0.6931471805599453f;
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = hopper::quad_sum(rows.sum[r]);
      inverse[r] = sum > 0 ? 1 / sum : 0;  // a row that sees no key: O = 0
      if constexpr (decltype(policy.score)::kDrops) inverse[r] *= policy.score.dropout.factor;
      float value = sum > 0 ? (rows.max[r] * scale_log2() + __log2f(sum)) * kLn2 : -INFINITY;
      if constexpr (decltype(policy.score)::kChanges) value += policy.score.left_out;
      const int row = query + 8 * r;
      if (threadIdx.x % 4 == 0 && row < work.sequence.queries)
        lse[(int64_t(work.head.batch) * problem.heads + work.head.head) * problem.seqlen_q +
            work.sequence.first_query + row] = value;
    }
    hopper::rescale_rows(output, inverse);
  }
};

//| ## The kernel
//|
//| Roles are divided as in chapter 5. A warp of the producer decides and streams, one thread brings queries, one stores. The
//| policy is a parameter of the kernel like the problem, and lies in constant memory for all of them.
/// Attention for the tiles of queries that this block takes. Grid: as many blocks as there are
/// multiprocessors, or fewer.
template <typename T, typename Sizes, typename Policy>
__global__ void __launch_bounds__(Sizes::kThreads, 1) masked(
    const __grid_constant__ CUtensorMap q_map,       // [batch, heads, panels, seqlen_q, 64]
    const __grid_constant__ CUtensorMap k_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ CUtensorMap v_map,       // [batch, kv heads, panels, seqlen_k, 64]
    const __grid_constant__ CUtensorMap output_map,  // [batch, heads, panels, seqlen_q, 64], for kStoreByTma
    T* o,                                            // [batch, heads, seqlen_q, head_dim], strided
    float* lse,                                      // [batch, heads, seqlen_q]
    const __grid_constant__ Problem problem, const __grid_constant__ Policy policy,
    int* counter) {  // 0 at the start
  using Shared = BlockShared<T, Sizes>;
  static_assert(sizeof(Shared) <= hopper::kMostSharedBytes,
                "more shared memory than a block of sm_90 may have");
  auto& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == 0) initialise(shared);
  __syncthreads();  // the barriers are ready

  //| The producer gives registers back, and the consumers take them. 32 or 40 a thread (`Sizes`) are enough to classify tiles.
  // The same in all threads of a warp; the shuffle tells the compiler so.
  const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32, 0), warpgroup = warp / kWarpsOfWarpgroup;
  if (warpgroup == 0) {
    setmaxnreg_dec<Sizes::kProducerRegisters>();
    if (warp == 0) produce_keys<Sizes>(shared, k_map, v_map, problem, policy, counter);
    if (threadIdx.x == 32) produce_queries<Sizes>(shared, q_map);
    if constexpr (Sizes::kStoreByTma)
      if (threadIdx.x == 64) store_outputs<Sizes>(shared, output_map);
    return;
  }

  setmaxnreg_inc<Sizes::kConsumerRegisters>();
  const int number = warpgroup - 1;
  const int row = warp % kWarpsOfWarpgroup * kRowsOfWarp;  // of the warp in the warpgroup
  if constexpr (Sizes::kPingpong) hopper::open_turns<Sizes::kConsumers>(number);

  //| A consumer goes round: take the next work, attend, hand the output over, give the work's place back. A negative first query
  //| ends the loop. At d = 256 there is no room for outputs in shared memory, and they leave from the registers, row by row, as far
  //| as the sequence has rows.
  hopper::PipelineState<kWorkStages> next;
  hopper::PipelineState<Sizes::kStages> state;
  for (uint32_t parity = 0;; parity ^= 1) {
    wait_full(shared.work, next);
    const Work& work = shared.work.tile[next.stage];
    if (work.first_query < 0) return;
    const int query = work.first_query + number * kRowsOfWarpgroup + row + int(threadIdx.x % 32 / 4);
    Consumer<T, Sizes, Policy> consumer(shared, problem, policy, state, parity, number, query, work);
    consumer.attend();
    //| The output takes one of two ways, as in chapter 5: through shared memory and TMA, or straight from the registers.
    consumer.finish(lse);
    if constexpr (Sizes::kStoreByTma) {
      mbarrier_wait(&shared.output_empty[number], parity ^ 1);  // TMA has read the last output
      hopper::lay_down<T, Sizes::kHeadDim>(shared.output[number], consumer.output, row);
      __syncwarp();  // all lanes have waited, and written
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.output_full[number]);
    } else {
      T* const first_row = o + work.head.batch * problem.o_strides.batch +
                           work.head.head * problem.o_strides.head +
                           work.sequence.first_query * problem.o_strides.row;
      hopper::store_from_registers<T, Sizes::kHeadDim>(consumer.output, first_row, problem.o_strides.row,
                                                       query, work.sequence.queries);
    }
    __syncwarp();  // all lanes have read what they need of the work
    release(shared.work, next);
    next.advance();
  }
}

}  // namespace flashbook::masks
