//| # A round of step 6
//|
//| A block keeps 128 keys. Its two warpgroups own 64 each, and process a list's tiles of queries together.
//| Each tile is one *round*, as in chapter 7: S^T and dP^T; the exponential while dP^T is computed; dV and
//| dK, whose left operands are registers; and dQ, for which dS goes through shared memory. It is built from
//| [`gradient_round.h`](../../common/hopper/gradient_round.h). Three things differ: a list determines the
//| next tile of queries, the mask is a template parameter, and a function may change the scores.
//|
//| ![A round of two warpgroups as a timeline: five products, the exponential, dS through shared memory, dQ
//| handed over](../../docs/figures/backward_round.svg)
#pragma once
#include "chapters/09_masks/step6_bias.cuh"
#include "chapters/09_masks/step6_transposed.cuh"
#include "common/hopper/gradient_round.h"

namespace flashbook::masks {

//| ## Versions
//|
//| Up to d = 128 a block sums all gradients of its keys. At d = 256 the sums of dK and dV do not fit in
//| registers together, so one launch computes dV and another dK and dQ, as in chapter 7. With a softcap they
//| do not fit at any head dimension, and the solution is the same. A tile has 64 queries, or 128 at d = 64.
/// One version of the kernel, as a type.
template <int kHeadDim_, Sums kSums_ = kHeadDim_ == 256 ? Sums::values : Sums::all,
          int kValueDim_ = kHeadDim_>
struct GradientKernelTraits {
  static constexpr int kHeadDim = kHeadDim_, kValueDim = kValueDim_;
  static constexpr bool kWide = kHeadDim != kValueDim;  ///< with rounds of its own (step6_wide.cuh)
  static constexpr Sums kSums = kSums_;
  static constexpr int kQueries = kHeadDim == 64 ? 128 : 64;  ///< queries per tile
  static constexpr int kStages = kSums == Sums::keys_and_queries ? 1 : 2, kDsStages = kStages;
  static constexpr bool kAddByTma = kSums == Sums::all;  ///< otherwise there is no dQ, or no space for it
  static constexpr bool kStoresDq = false;  ///< whether dQ of short sequences is stored, not added
  static constexpr int kThreads = (kKeyConsumers + 1) * kWarpgroup;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
};

//| Packed sequences of at most 128 keys need no sums of dQ. A branch for them costs the others 2 %, so it is
//| in a version of its own, for launches whose sequences have no more keys on average.
/// The version that stores dQ of sequences with one tile of keys.
template <typename Traits>
struct Storing : Traits {
  static constexpr bool kStoresDq = true;
};

//| ## Shared memory
//|
//| Shared memory is as in chapter 7. The broadcasts are new: the work, as in the forward pass, and next to a
//| stage of Q the list's entry for its tile, and the head. So a consumer needs no list: it receives the
//| number of rounds, and reads the rest next to the stage.

/// The tile of queries in a stage.
struct QueryTile {
  int head, entry;  ///< a query head, and an entry of its list (step6_transposed.cuh)
};

//| The ranges of the tile's keys are computed once, and read in each partial tile.
/// Broadcasts within a block, apart from the tiles.
template <int kStages>
struct GradientBroadcast {
  Pipeline<KeyWork, 2> work;      ///< one thread fills it, all others read
  QueryTile query_tile[kStages];  ///< tile of queries in each stage of q
  QueriesOfKey seen[kTileKeys];   ///< queries that see each key, by ranges
};

/// Initialises the barriers, in one thread. `readers` counts warps.
template <int kStages>
__device__ __forceinline__ void initialise(GradientBroadcast<kStages>& broadcast, int readers) {
  initialise(broadcast.work, 1, readers, "work full", "work empty");
}

template <typename T, typename Traits>
using GradientShared = hopper::GradientShared<T, Traits, GradientBroadcast<Traits::kStages>>;

/// Lets the next K and V overwrite those in shared memory, which this thread no longer reads.
template <typename Shared>
__device__ __forceinline__ void release_keys(Shared& shared) {
  __syncwarp();  // nor do the other lanes
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.keys_empty);
}

//| ## A consumer
//|
//| Registers per thread at d = 128 with 64 queries: 64 floats each for dK and dV, 32 each for scores and dP,
//| and while dQ is computed another 32 for it, 16 for P and 16 for dS.
/// A thread of a consumer, for one tile of keys.
template <typename T, typename Traits, typename Mask, typename Score>
struct Gradients {
  static constexpr int kHeadDim = Traits::kHeadDim, kQueries = Traits::kQueries;
  static constexpr bool kHasDv = Traits::kSums != Sums::keys_and_queries;
  static constexpr bool kHasDk = Traits::kSums != Sums::values;
  using Part = DqPart<kHeadDim, kQueries>;
  using Shared = GradientShared<T, Traits>;
  using Scores = float[kQueries / 2];
  using State = PipelineState<Traits::kStages>;
  //| Whether the function has a slope other than 1, and whether there is dropout, are compile-time constants.
  static constexpr bool kSlopes = kHasSlope<Score>;
  static constexpr bool kDrops = Score::kExtras.drops;
  static constexpr bool kLearns = std::is_same_v<Score, LearnedBias>;

  //| References take no registers: they refer to shared memory or to the kernel's arguments. A thread itself
  //| holds the sums `dk` and `dv`.
  Shared& shared;
  const GradientProblem& problem;
  const Mask& mask;
  const Score& score;
  const KeyWork& work;
  int number;          ///< index of this consumer
  const int warp_key;  ///< the warp's first key, counted from that of the tile
  float dk[kHasDk ? kHeadDim / 2 : 2], dv[kHasDv ? Traits::kValueDim / 2 : 2];

  __device__ __forceinline__ Gradients(Shared& shared, const GradientProblem& problem, const Mask& mask,
                                       const Score& score, const KeyWork& work, int number, int warp)
      : shared(shared),
        problem(problem),
        mask(mask),
        score(score),
        work(work),
        number(number),
        warp_key(number * kRowsPerWarpgroup + warp % kWarpsPerWarpgroup * kRowsPerWarp) {
#pragma unroll
    for (float& sum : dk) sum = 0.0f;
#pragma unroll
    for (float& sum : dv) sum = 0.0f;
  }

  //| ### The mask of a partial tile
  //|
  //| This is the forward pass's mask transposed: rows are keys, two per thread, and columns are queries,
  //| two of every eight. The thread finishes one key before the next, so it needs registers for only
  //| one.

  //| Rows and columns are numbered by the accumulator's layout: of every four floats the first two are in row
  //| 0, the last two in row 1.
  /// The query of a thread's column i, counted from its first query of the tile; and the float of row r in
  /// that column.
  static constexpr __host__ __device__ int column_of(int i) { return i / 2 * 8 + i % 2; }
  static constexpr __host__ __device__ int float_of(int r, int i) { return i / 2 * 4 + 2 * r + i % 2; }

  /// Return the thread's row r of keys, in the tile and in the sequence.
  __device__ __forceinline__ int tile_key_of(int r) const {
    return warp_key + int(threadIdx.x % 32 / 4) + 8 * r;
  }
  __device__ __forceinline__ int key_of(int r) const { return work.first_key + tile_key_of(r); }

  //| The ranges of a warp's 16 keys are the same in all rounds, so they are computed once per tile of keys,
  //| one key per lane, and kept in shared memory. So the search for a document is done before the first
  //| product.
  /// Computes the ranges of the warp's keys before the first round.
  __device__ __forceinline__ void begin() {
    if constexpr (Mask::kByIntervals) {
      const int lane = threadIdx.x % 32;
      if (lane < kRowsPerWarp)
        shared.broadcast.seen[warp_key + lane] =
            mask.column(work, work.head, work.first_key + warp_key + lane);
      __syncwarp();  // the warp's ranges have been written
    }
  }

  //| A thread rereads the data next to a stage whenever it is needed, since no register is free to keep it.
  __device__ __forceinline__ Head head_of(int stage) const {
    return {shared.broadcast.query_tile[stage].head, work.head.batch};
  }
  __device__ __forceinline__ bool is_partial(int stage) const {
    return QueryList::is_partial(shared.broadcast.query_tile[stage].entry);
  }
  /// Returns the first query of the tile in a stage, and (below) the first one of this thread.
  __device__ __forceinline__ int first_query_of(int stage) const {
    return QueryList::tile(shared.broadcast.query_tile[stage].entry) * kQueries;
  }
  __device__ __forceinline__ int thread_query_of(int stage) const {
    return first_query_of(stage) + 2 * int(threadIdx.x % 4);
  }

  //| **Bits.** For each of its keys a thread makes one word, with a bit for each of its columns.
  //| `bits_before` sets the bits of the columns before a query; a thread has two columns of every eight. An
  //| interval is a run of ones, the difference of two such words. A key has one interval of queries that see
  //| it and two that do not: six calls make its word, and no score is compared with any bound.
  /// Returns the bits of the columns before a query, counted from the thread's first.
  static __device__ __forceinline__ uint32_t bits_before(int query) {
    const int q = max(query, 0), columns = min(q / 8 * 2 + min(q % 8, 2), kQueries / 4);
    return columns == 32 ? ~0u : (1u << columns) - 1;
  }

  /// Returns which of the thread's queries see its key of row r.
  __device__ __forceinline__ uint32_t ask(int stage, int r) const {
    const int first = thread_query_of(stage);
    const auto run = [&](int begin, int end) {
      return bits_before(end - first) & ~bits_before(begin - first);
    };
    if constexpr (Mask::kByIntervals) {
      const QueriesOfKey seen = shared.broadcast.seen[tile_key_of(r)];
      uint32_t bits = run(seen.begin, seen.end);
      if (mask.has_intervals()) {
        const Hidden hidden = mask.hidden(head_of(stage), key_of(r));
        bits &= ~run(hidden.lower_begin, hidden.lower_end) & ~run(hidden.upper_begin, hidden.upper_end);
      }
      return bits;
    } else {
      //| A mask that reads memory has no intervals, so it is evaluated query by query. The loop is not
      //| unrolled, or all loads would occupy registers at once.
      const auto seen = mask.column(work, head_of(stage), key_of(r));
      uint32_t bits = 0;
#pragma unroll 1
      for (int i = 0; i < kQueries / 4; ++i) bits |= uint32_t(seen.sees(first + column_of(i))) << i;
      return bits;
    }
  }

  /// Scores of keys that a query does not see become -inf.
  __device__ __forceinline__ void hide(Scores& scores, const uint32_t (&seen)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < kQueries / 4; ++i)
        if ((seen[r] >> i & 1) == 0) scores[float_of(r, i)] = -INFINITY;
  }

  //| ### P
  __device__ __forceinline__ float scale_log2() const {
    if constexpr (Score::kExtras.changes)
      return score.scale_log2;
    else
      return problem.scale_log2;
  }

  //| **With a slope** dS has one more factor, 4y(1 - y) for a softcap, and there are no registers for it: P,
  //| dP and the slope would be three floats per element. But dV takes P in 16 bits, and dS takes only the
  //| product of P and the slope. So `to_probabilities_with_slope` rounds P and replaces it by the product at
  //| once, while dP^T still runs, and `to_ds` is the same for all functions. The slope is that of the score
  //| before the mask; the mask makes P zero, and does not change the score.
  /// scores = P^T * slope, from capped scores, and p = P^T.
  template <bool kMasked>
  __device__ __forceinline__ void to_probabilities_with_slope(Scores& scores,
                                                              uint32_t (&p)[kQueries / kMmaK][4],
                                                              const uint32_t (&seen)[2], int stage) const {
    const auto* lse = reinterpret_cast<const float2*>(shared.lse[stage]) + threadIdx.x % 4;
    const float scale = scale_log2();
    const auto column_of_row = [&, query = thread_query_of(stage)](int r) {
      return score_column(score, work, head_of(stage), key_of(r), query);
    };
    const decltype(column_of_row(0)) row_columns[2] = {column_of_row(0), column_of_row(1)};
    //| `after` is the result of a second function; only the exponential uses it.
#pragma unroll
    for (int group = 0; group < kQueries / 8; ++group) {
      const float2 column_lse = lse[4 * group];
      float own[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float y = scores[4 * group + i];
        const auto& column = row_columns[i / 2];
        own[i] = exp2_approx(scale * column.after(y, column_of(2 * group + i % 2)) -
                             (i % 2 == 0 ? column_lse.x : column_lse.y));
        if (kMasked && (seen[i / 2] >> (2 * group + i % 2) & 1) == 0) own[i] = 0;
        scores[4 * group + i] = own[i] * column.slope(y);
      }
      p[group / 2][group % 2 * 2] = pack<T>(own[0], own[1]);
      p[group / 2][group % 2 * 2 + 1] = pack<T>(own[2], own[3]);
    }
  }

  //| ### Dropout
  //|
  //| With M the kept elements and c = 1 / (1 - p), the forward pass's output is $c\,(M \circ P)\,V$. So
  //| $dV = c\,(M \circ P)^T dO$, $dP = c\,M \circ (dO\,V^T)$, and $dS = P \circ (dP - D)$ as always, with the
  //| D of that output: the softmax has seen all of P. M was not stored; its bits are drawn again.
  //|
  //| One call of Philox serves eight keys of one query, and the forward pass's thread has all eight
  //| (`step5_mask_functions.cuh`). This thread has two of them, 8 apart, and so has the lane of the
  //| neighbouring key, `lane ^ 4`. So the two lanes share the calls: of the two queries in each group of
  //| eight, the one with the even key draws for the first, the other for the second. Each stores its own two
  //| answers and its neighbour's, and one exchange per row of keys delivers these after the last call. That
  //| is one call per four elements, where the forward pass needs one per eight.

  /// Bit i of `kept[r]`: whether dropout keeps the thread's query of column i and its key of row r. All lanes
  /// of the warp.
  __device__ __forceinline__ void draw(uint32_t (&kept)[2], int stage) const {
    const Head head = head_of(stage);
    const int odd = int(threadIdx.x / 4 % 2);  // the key's last bit, since tiles begin at multiples of 128
    const int key = key_of(0), query = work.sequence.first_query + thread_query_of(stage) + odd;
    const int first = key / Dropout::kKeysPerDraw * Dropout::kKeysPerDraw;
    uint32_t neighbours[2] = {0, 0};
    kept[0] = kept[1] = 0;
#pragma unroll
    for (int group = 0; group < kQueries / 8; ++group) {
      const PhiloxWords bits =
          score.dropout.bits(head.batch, head.head, query + 8 * group, first, key % 8 / 2);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint32_t word = key / 16 % 2 == 0 ? bits.word[r] : bits.word[2 + r];  // words of keys 8 apart
        kept[r] |= uint32_t(score.dropout.keeps(word, odd)) << 2 * group;
        neighbours[r] |= uint32_t(score.dropout.keeps(word, 1 - odd)) << 2 * group;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      kept[r] = kept[r] << odd | __shfl_xor_sync(kWholeWarp, neighbours[r] << odd, 4);
  }

  //| dV needs P after dropout, and dS needs all of P. At d = 64 no register is free for the bits while P is
  //| rounded, so they are stored in the unused sign of a probability, as in FlashAttention. The factor c is
  //| applied to dV once, at the end.
  /// With scores = P^T, elements that dropout leaves out become negative.
  __device__ __forceinline__ void mark(Scores& scores, const uint32_t (&kept)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < kQueries / 4; ++i) {
        float& p = scores[float_of(r, i)];
        p = kept[r] >> i & 1 ? p : -p;
      }
  }

  /// p = what dropout keeps of P^T, without the factor, from marked scores.
  __device__ __forceinline__ void round_kept(uint32_t (&p)[kQueries / kMmaK][4], const Scores& scores) const {
#pragma unroll
    for (int i = 0; i < kQueries / 2; i += 2)
      p[i / 8][i / 2 % 4] = pack<T>(fmaxf(scores[i], 0.0f), fmaxf(scores[i + 1], 0.0f));
  }

  /// Zeroes dP^T of marked elements, multiplies the others by the factor, and removes the marks.
  __device__ __forceinline__ void drop(Scores& dp, Scores& scores) const {
#pragma unroll
    for (int i = 0; i < kQueries / 2; ++i) {
      dp[i] *= scores[i] < 0 ? 0.0f : score.dropout.factor;
      scores[i] = fabsf(scores[i]);
    }
  }

  //| ### Functions on scores
  //|
  //| A function on scores is set up once for each key, and counts queries from the thread's first one.
  /// Applies the function to the scores.
  __device__ __forceinline__ void change(Scores& scores, int stage) const {
    const int thread_query = thread_query_of(stage);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto column = score_column(score, work, head_of(stage), key_of(r), thread_query);
#pragma unroll
      for (int i = 0; i < kQueries / 4; ++i)
        scores[float_of(r, i)] = column(scores[float_of(r, i)], column_of(i));
    }
  }

  //| ### A bias
  //|
  //| If documents are a mask, each key has its own document, and a warp's pairs share no diagonals. Then
  //| every element is added separately. That is slow, but rare: packed documents have their own tiles.
  /// Adds dS^T to the gradient of the bias, if there is one.
  __device__ __forceinline__ void add_to_bias(const Scores& ds, int stage) const {
    if (score.gradient == nullptr) return;
    float* const sums = score.gradient + score.middle_of(head_of(stage).head);
    const DocumentBounds& documents = score.ranges.documents;
    if (documents.count == 0) {
      const int own = query_at(documents, work.sequence, work.first_key + warp_key) - first_query_of(stage);
      return add_diagonals(ds, sums, score.reach, own);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = query_at(documents, work.sequence, key_of(r)) - thread_query_of(stage);
#pragma unroll
      for (int i = 0; i < kQueries / 4; ++i)
        if (const float value = ds[float_of(r, i)]; value != 0)
          red_add(sums + min(max(own - column_of(i), -score.reach), score.reach), value);
    }
  }

  //| ### dQ
  //|
  //| A block that has all keys of a sequence stores its part of dQ. With two stages, the stage is the parity
  //| of the barriers between a consumer and the thread that adds. Each round completes a phase of both, even
  //| if there is nothing to add.
  /// Stores this warpgroup's part of dQ of the tile of queries in a stage, or hands it over.
  __device__ __forceinline__ void give_dq(const float (&dq)[Part::kFloats], [[maybe_unused]] T* to,
                                          int stage) const {
    if constexpr (Traits::kStoresDq)
      if (problem.is_stored(work.sequence)) {
        const int query = first_query_of(stage) + (Part::kByRows ? number * kRowsPerWarpgroup : 0);
        const int column = Part::kByRows ? 0 : number * Part::kColumns;
        store_from_registers(
            dq, to + offset_of(problem.at.dq, head_of(stage), work.sequence.first_query + query) + column,
            problem.at.dq.row, row_of_thread(), work.sequence.queries - query, problem.scale,
            problem.head_dim - column);
        mbarrier_wait(&shared.dq_empty[number], stage ^ 1);
        __syncwarp();  // all lanes have read where the stage's queries are
        if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full[number]);
        return;
      }
    hand_over(shared, dq, number, stage);
  }

  //| ### The round
  //|
  //| The order of issue is that of chapter 7, whose page explains it. Only a partial tile is masked: the bit
  //| of its entry is the same for the whole block, so the branch is uniform.
  /// Processes a query tile. `dq_sums` is dQ in the workspace, `to_dq` the tensor, for sequences with one
  /// tile of keys.
  __device__ __forceinline__ void step(State& state, float* dq_sums, [[maybe_unused]] T* to_dq) {
    constexpr uint32_t kWarpgroupRows = kRowsPerWarpgroup * kPanelRowBytes;
    Scores scores, dp;
    uint32_t p[kQueries / kMmaK][4], ds[kQueries / kMmaK][4];

    wait_full(shared.q, state);
    uint32_t seen[2] = {0, 0};
    //| The products run while the bits are made. A mask that reads memory needs more registers than are free
    //| while the scores are computed, so it is evaluated before.
    if constexpr (!Mask::kByIntervals)
      if (is_partial(state.stage)) seen[0] = ask(state.stage, 0), seen[1] = ask(state.stage, 1);
    //| Both scores are issued before either is waited for. Each sums over the head dimension, along the rows
    //| of both tiles.
    wgmma_fence();
    issue_scores<T, kHeadDim, kTileKeys>(scores, wgmma_advance(k_major(shared.k), number * kWarpgroupRows),
                                         k_major(shared.q.tile[state.stage]));
    wait_full(shared.d_o, state);
    if constexpr (kHasDk) {
      wgmma_fence();
      issue_scores<T, kHeadDim, kTileKeys>(dp, wgmma_advance(k_major(shared.v), number * kWarpgroupRows),
                                           k_major(shared.d_o.tile[state.stage]));
    }
    if constexpr (Mask::kByIntervals)
      if (is_partial(state.stage)) seen[0] = ask(state.stage, 0), seen[1] = ask(state.stage, 1);
    uint32_t kept[2];
    if constexpr (kDrops) draw(kept, state.stage);
    if constexpr (kHasDk)
      wgmma_wait<1>();  // S^T is done; dP^T still runs
    else
      wgmma_wait<0>();
    wgmma_pin(scores);
    //| The score function, the mask and the exponential follow in this order, all while dP^T is computed.
    if constexpr (Score::kExtras.changes) change(scores, state.stage);
    if constexpr (kSlopes) {
      if (is_partial(state.stage))
        to_probabilities_with_slope<true>(scores, p, seen, state.stage);
      else
        to_probabilities_with_slope<false>(scores, p, seen, state.stage);
    } else {
      if (is_partial(state.stage)) hide(scores, seen);
      to_probabilities(scores, shared.lse[state.stage], scale_log2());
      if constexpr (kDrops) mark(scores, kept);
      if constexpr (kHasDv && kDrops)
        round_kept(p, scores);
      else if constexpr (kHasDv)
        round_to_fragments<T>(p, scores);
    }
    if constexpr (kHasDk) {
      wgmma_wait<0>();
      wgmma_pin(dp);
      if constexpr (kDrops) drop(dp, scores);
      to_ds(scores, dp, shared.d[state.stage]);  // includes the slope, if there is one
      if constexpr (kLearns) add_to_bias(scores, state.stage);
      round_to_fragments<T>(ds, scores);
    }

    //| P^T is a register operand, so dV is issued before this warpgroup waits for the other
    //| one.
    if constexpr (kHasDv) {
      wgmma_pin(dv);
      wgmma_pin(p);
      wgmma_fence();
      issue_accumulate<T>(dv, p, mn_major(shared.d_o.tile[state.stage]));
    }
    if constexpr (!kHasDk) {
      finish_values(shared, state, dv, p);
    } else {
      //| If one launch sums dK and dQ, dK is issued first and runs while both warpgroups wait for dS.
      const uint64_t q_columns = mn_major(shared.q.tile[state.stage]);
      if constexpr (!Traits::kAddByTma) {
        __syncwarp();  // all lanes have read the stage's data, before lane 0 releases it
        release(shared.d_o, state);
        wgmma_pin(dk);
        wgmma_pin(ds);
        wgmma_fence();
        issue_accumulate<T>(dk, ds, q_columns);
      }
      //| With one buffer for dS, the other warpgroup may still be reading what would be overwritten. With
      //| two, the previous round's barrier rules that out.
      if constexpr (Traits::kDsStages == 1)
        named_barrier_sync<kDsRead,
                           kKeyConsumerThreads>();  // dQ of the previous round is computed
      auto& ds_tile = shared.ds[state.stage % Traits::kDsStages];
      store_transposed_to_smem(ds_tile, ds, warp_key);
      named_barrier_sync<kDsWritten, kKeyConsumerThreads>();  // both halves of dS have been written
      const uint64_t ds_rows = k_major(ds_tile), k_columns = mn_major(shared.k);
      wgmma_fence();
      if constexpr (!Traits::kAddByTma) {
        const int row =
            problem.workspace_row(head_of(state.stage)) + work.first_row + first_query_of(state.stage);
        __syncwarp();  // all lanes have read where the stage's queries are
        finish_keys_and_queries<T, Traits>(shared, state, dk, ds, ds_rows, k_columns,
                                           Part::sums_of(dq_sums, row, number), number, problem.in_turns);
      } else {
        //| dQ is issued before dK, so that dK runs while dQ is handed over.
        wgmma_pin(dk);
        wgmma_pin(ds);
        float dq[Part::kFloats];
        issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, ds_rows, k_columns, number, 0);
        issue_accumulate<T>(dk, ds, q_columns);
        wgmma_wait<1>();  // dV and dQ are done; dK still runs
        wgmma_pin(dv);
        wgmma_pin(p);
        wgmma_pin(dq);
        release(shared.d_o, state);
        give_dq(dq, to_dq, state.stage);
        wgmma_wait<0>();
        wgmma_pin(dk);
        wgmma_pin(ds);
        release(shared.q, state);
      }
    }
    state.advance();
  }

  /// Processes all rounds of the work.
  __device__ __forceinline__ void run(State& state, float* dq_sums, T* to_dq) {
#pragma unroll 1
    for (int left = work.rounds; left > 0; --left) step(state, dq_sums, to_dq);
  }

  //| ## Stores
  //|
  //| dK and dV are stored straight from registers, row by row, as far as the *sequence* has keys. The next
  //| row may belong to the next document, and another block has stored its gradient. A tile of keys that no
  //| query sees has an empty list, and stores zeros. dK is multiplied by the scale here, and dV by dropout's
  //| factor, which the loop has left out.
  __device__ __forceinline__ void store(T* to_dk,  // [batch, kv heads, seqlen_k, head_dim], strided
                                        T* to_dv) {
    const Head& head = work.head;
    const int first = work.sequence.first_key, key = key_of(0), end = work.sequence.keys;
    if constexpr (kHasDv && kDrops) {
#pragma unroll
      for (float& sum : dv) sum *= score.dropout.factor;
    }
    if constexpr (kHasDv)
      store_from_registers(dv, to_dv + offset_of(problem.at.dv, head, first), problem.at.dv.row, key, end,
                           1.0f, Traits::kWide ? problem.value_dim : problem.head_dim);
    if constexpr (kHasDk) {
#pragma unroll
      for (float& sum : dk) sum *= problem.scale;
      store_from_registers(dk, to_dk + offset_of(problem.at.dk, head, first), problem.at.dk.row, key, end,
                           1.0f, problem.head_dim);
    }
  }
};

}  // namespace flashbook::masks
