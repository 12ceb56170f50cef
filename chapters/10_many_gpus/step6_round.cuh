//| # A round of the gradient
//|
//| A block keeps 128 keys. Its two warpgroups own 64 each and go through the tiles of queries together. Each
//| tile is a *round*: chapter 7's five products in the same order, built from
//| [`gradient_round.h`](../../common/hopper/gradient_round.h). The mask is new: queries and keys may belong
//| to two ranks, so it is the mask of `tokens.cuh`, transposed.
//|
//| ![A round of two warpgroups as a timeline: five products, the exponential, dS through shared memory, dQ
//| handed over](../../docs/figures/backward_round.svg)
#pragma once
#include "chapters/10_many_gpus/documents.cuh"
#include "common/hopper/gradient_round.h"

namespace flashbook::many_gpus {

//| ## The problem
//|
//| A query sees a prefix of the keys. Conversely, a key is seen by a suffix of the queries: from the first
//| one that is late enough in the sequence. If there is none, the key gets no gradient from this rank.
//|
//| All tensors of a rank are laid out as [heads, tokens, head_dim], so batch entries are just more heads.
/// The shape of one launch of the gradient: queries of one rank, keys of one.
struct GradientProblem {
  int seqlen_q, seqlen_k;  ///< queries and keys per head
  int group;               ///< query heads that share one key head
  bool causal;
  float scale;       ///< factor on the scores, and so on dQ and dK
  float scale_log2;  ///< scale * log2(e)
  int padded_q;      ///< rows per head in the workspace: seqlen_q, rounded up to whole tiles
  Tokens queries, keys;
  int shift;  ///< seqlen_k - seqlen_q of the whole sequence

  /// Returns the last of these keys that `query` sees; negative if it sees none.
  __device__ int last_key(int query) const {
    if (!causal) return seqlen_k - 1;
    return keys.before(queries.place(min(query, seqlen_q - 1)) + shift + 1) - 1;
  }

  /// Returns the first query that sees `key`, 0 <= key < seqlen_k; seqlen_q if none does.
  __device__ int first_query(int key) const { return causal ? queries.before(keys.place(key) - shift) : 0; }
};

//| For packed documents the host lists each key's queries ([`documents.h`](documents.h)).
/// The shape of one gradient launch over packed documents.
struct DocumentsGradientProblem : GradientProblem {
  const QueriesOfKey* seen = nullptr;  ///< queries that see each key, in whole tiles
  const KeyTile* tiles = nullptr;      ///< in ascending order of their number of queries
};

//| ## Versions
//|
//| They are as in chapter 7: a tile has 64 queries, or 128 at d = 64. At d = 256 the sums of dK and dV do not
//| fit in registers together, so one launch computes dV and another dK and dQ. Documents need only one
//| version, because their lists already account for a causal mask.
enum class Seen { all, causal, documents };  ///< what a version's queries see

/// One version of the kernel, as a type.
template <int kHeadDim_, Seen kSeen_, Sums kSums_ = kHeadDim_ == 256 ? Sums::values : Sums::all>
struct GradientVersion {
  static constexpr int kHeadDim = kHeadDim_, kValueDim = kHeadDim;
  static constexpr Seen kSeen = kSeen_;
  using Problem = std::conditional_t<kSeen == Seen::documents, DocumentsGradientProblem, GradientProblem>;
  static constexpr Sums kSums = kSums_;
  static constexpr int kQueries = kHeadDim == 64 ? 128 : 64;  ///< queries per tile
  static constexpr int kStages = kSums == Sums::keys_and_queries ? 1 : 2;
  static constexpr int kDsStages = kHeadDim == 256 ? 1 : 2;
  static constexpr bool kAddByTma = kSums == Sums::all;  ///< otherwise there is no dQ, or no space for it
  static constexpr bool kDeterministic = false;          ///< additions to dQ have no fixed order
  static constexpr Schedule kSchedule = Schedule::in_order_persistent;
  static constexpr int kThreads = kKeyConsumerThreads + kWarpgroup;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
};

template <typename T, typename Version>
using BackwardShared = GradientShared<T, Version, TileBroadcast>;

//| ## A consumer
//|
//| Registers per thread at d = 128 with 64 queries: 64 floats each for dK and dV, 32 each for scores and dP,
//| 16 each for P and dS, and 32 more for dQ while it is computed.
/// A thread of a consumer, for one tile of keys.
template <typename T, typename Version>
struct Gradients {
  static constexpr int kHeadDim = Version::kHeadDim, kQueries = Version::kQueries;
  static constexpr bool kHasDv = Version::kSums != Sums::keys_and_queries;
  static constexpr bool kHasDk = Version::kSums != Sums::values;
  using Part = DqPart<kHeadDim, kQueries>;
  using Shared = BackwardShared<T, Version>;
  using Problem = typename Version::Problem;
  static constexpr bool kDocuments = Version::kSeen == Seen::documents;

  Shared& shared;
  const Problem& problem;
  int number;          ///< index of this consumer
  const int warp_key;  ///< the warp's first key, counted from that of the tile
  QueriesOfKey all;    ///< with documents: queries that see all of the warpgroup's keys
  float dk[kHasDk ? kHeadDim / 2 : 2], dv[kHasDv ? kHeadDim / 2 : 2];

  __device__ __forceinline__ Gradients(Shared& shared, const Problem& problem, int first_key, int number,
                                       int warp)
      : shared(shared),
        problem(problem),
        number(number),
        warp_key(number * kRowsPerWarpgroup + warp % kWarpsPerWarpgroup * kRowsPerWarp) {
    //| The queries that see every key of the warpgroup begin with the first query that sees its last key, and
    //| end with the last query that sees its first key.
    if constexpr (kDocuments) {
      const QueriesOfKey* const seen = problem.seen + first_key + number * kRowsPerWarpgroup;
      all = {seen[kRowsPerWarpgroup - 1].begin, seen[0].end};
    }
#pragma unroll
    for (float& sum : dk) sum = 0.0f;
#pragma unroll
    for (float& sum : dv) sum = 0.0f;
  }

  //| ### The mask
  //|
  //| Rows are keys, two per thread, and columns are queries. Queries before the first that sees
  //| the key are hidden. Keys past the end are hidden from all queries: TMA fills them with zeros, but an
  //| infinite probability times zero is NaN.
  /// Scores of keys that a query does not see become -inf. `first_key` and `first_query` begin the tile.
  __device__ __forceinline__ void mask(float (&scores)[kQueries / 2], int first_key, int first_query) const {
    const int key = first_key + warp_key + threadIdx.x % 32 / 4;
    const int thread_query = first_query + 2 * int(threadIdx.x % 4);
    //| With documents, queries past the end of the document are hidden, too. The thread finishes one key
    //| before the other to save registers.
    if constexpr (kDocuments) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const QueriesOfKey seen = problem.seen[key + 8 * r];
        const int begin = seen.begin - thread_query, end = seen.end - thread_query;
#pragma unroll
        for (int i = 0; i < kQueries / 4; ++i) {
          const int column = i / 2 * 8 + i % 2;
          if (column < begin || column >= end) scores[i / 2 * 4 + 2 * r + i % 2] = -INFINITY;
        }
      }
      //| Without documents, the limits of both keys are computed from the mask of tokens.cuh.
    } else {
      int limit[2];  // the first query that sees the key, relative to thread_query
#pragma unroll
      for (int r = 0; r < 2; ++r)
        limit[r] =
            key + 8 * r < problem.seqlen_k ? problem.first_query(key + 8 * r) - thread_query : kQueries;
#pragma unroll
      for (int i = 0; i < kQueries / 2; ++i)
        if (i / 4 * 8 + i % 2 < limit[i / 2 % 2]) scores[i] = -INFINITY;
    }
  }

  /// Returns whether some query of the tile does not see some key of this warpgroup.
  __device__ __forceinline__ bool is_partial(int first_key, int first_query) const {
    if constexpr (kDocuments) return first_query < all.begin || first_query + kQueries > all.end;
    return first_key + number * kRowsPerWarpgroup + kRowsPerWarpgroup - 1 > problem.last_key(first_query);
  }

  //| ### The round
  //|
  //| Both S^T and dP^T are issued before the first wait, so S^T becomes P^T while dP^T is still being
  //| computed. Only tiles that the mask or the last key cuts are masked; this branch is uniform across a
  //| warpgroup.
  /// Processes a query tile. `sums` is where this warpgroup's part of its dQ is added, if registers add it.
  __device__ __forceinline__ void step(PipelineState<Version::kStages>& state, int first_key, int first_query,
                                       float* sums) {
    constexpr uint32_t kWarpgroupRows = kRowsPerWarpgroup * kPanelRowBytes;
    float scores[kQueries / 2], dp[kQueries / 2];
    Fragments<kQueries> p, ds;
    wait_full(shared.q, state);
    wgmma_fence();
    issue_scores<T, kHeadDim, kTileKeys>(scores, wgmma_advance(k_major(shared.k), number * kWarpgroupRows),
                                         k_major(shared.q.tile[state.stage]));
    wait_full(shared.d_o, state);
    if constexpr (kHasDk) {
      wgmma_fence();
      issue_scores<T, kHeadDim, kTileKeys>(dp, wgmma_advance(k_major(shared.v), number * kWarpgroupRows),
                                           k_major(shared.d_o.tile[state.stage]));
      wgmma_wait<1>();  // S^T is done; dP^T still runs
    } else {
      wgmma_wait<0>();
    }
    //| Masking only lowers scores to -inf, and a row's log-sum-exp is already known, so P^T needs no second
    //| pass over the keys. Once P^T is rounded, dS^T replaces it in `scores`.
    wgmma_pin(scores);
    if (is_partial(first_key, first_query)) mask(scores, first_key, first_query);
    to_probabilities(scores, shared.lse[state.stage], problem.scale_log2);
    if constexpr (kHasDv) round_to_fragments<T>(p, scores);
    if constexpr (kHasDk) {
      wgmma_wait<0>();
      wgmma_pin(dp);
      to_ds(scores, dp, shared.d[state.stage]);
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
      //| So is dS^T. With a single stage, dK is issued first and runs while both warpgroups wait for dS.
      const uint64_t q_columns = mn_major(shared.q.tile[state.stage]);
      if constexpr (Version::kStages == 1) {
        __syncwarp();  // all lanes have read D, before lane 0 releases it
        release(shared.d_o, state);
        wgmma_pin(dk);
        wgmma_pin(ds);
        wgmma_fence();
        issue_accumulate<T>(dk, ds, q_columns);
      }
      //| dQ sums over the keys of both warpgroups, so each needs the other's dS, which goes through shared
      //| memory. With one buffer for dS, the other warpgroup may still be reading what would be overwritten.
      //| With two, the previous round's barrier rules that out.
      if constexpr (Version::kDsStages == 1) named_barrier_sync<kDsRead, kKeyConsumerThreads>();
      auto& ds_tile = shared.ds[state.stage % Version::kDsStages];
      store_transposed_to_smem(ds_tile, ds, warp_key);
      named_barrier_sync<kDsWritten, kKeyConsumerThreads>();  // both halves of dS have been written
      const uint64_t ds_rows = k_major(ds_tile), k_columns = mn_major(shared.k);
      wgmma_fence();
      if constexpr (Version::kStages == 1) {
        finish_keys_and_queries<T, Version>(shared, state, dk, ds, ds_rows, k_columns, sums, number);
      } else {
        //| dQ is issued before dK, so that dK runs while dQ is handed over to the thread that adds it.
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
        hand_over(shared, dq, number, state.stage);  // with two stages, the stage is the parity
        wgmma_wait<0>();
        wgmma_pin(dk);
        wgmma_pin(ds);
        release(shared.q, state);
      }
    }
    state.advance();
  }
};

}  // namespace flashbook::many_gpus
