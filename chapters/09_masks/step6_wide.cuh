//| # Keys of 192 columns and values of 128
//|
//| DeepSeek's keys and values have tiles of their own widths. dK and dV of 64 keys would take 160 registers
//| per thread, so two launches share the work, as at d = 256: one sums dK and dQ, the other dV. There is room
//| for more stages than at d = 256, and registers for an operand, so the tensor cores have work during the
//| exponentials.
#pragma once
#include "chapters/09_masks/step6_backward_block.cuh"

namespace flashbook::masks {

//| dV leaves registers to the block's first warpgroup, two of whose warps round dQ.
/// The versions of the two launches.
template <Sums kSums>
struct WideTraits : GradientKernelTraits<192, kSums, 128> {
  static constexpr bool kHasDv = kSums == Sums::values;
  static constexpr int kStages = 3, kDoStages = kHasDv ? 3 : 1, kDsStages = 2;
  static constexpr int kProducerRegisters = kHasDv ? 88 : 40, kConsumerRegisters = kHasDv ? 208 : 232;
};

//| ## A consumer
//|
//| Masks, sums and stores are those of the other versions; the rounds are its own.
/// A thread of a consumer, for one tile of keys.
template <typename T, typename Traits, typename Mask, typename Score>
struct WideGradients : Gradients<T, Traits, Mask, Score> {
  using Base = Gradients<T, Traits, Mask, Score>;
  using Base::kHeadDim, Base::kQueries, Base::kHasDk;
  using Base::shared, Base::problem, Base::work, Base::number, Base::warp_key, Base::dk, Base::dv;
  using Part = typename Base::Part;
  using Scores = typename Base::Scores;
  using State = typename Base::State;
  using DoState = PipelineState<kDoStages<Traits>>;
  static_assert(Mask::kByIntervals && std::is_same_v<Score, Unchanged>, "the other versions take the rest");
  static_assert(Part::kPieces == 1, "each warpgroup computes half of dQ's columns at once");
  static constexpr int kValueDim = Traits::kValueDim;
  using Base::Base;

  Fragments<kHasDk ? kValueDim : kHeadDim> left;  ///< V, or K in rounds that sum dV, as a left operand

  /// Issues S^T of the tile of queries at `state`, as one group, when the tile has arrived.
  __device__ __forceinline__ void issue_s(Scores& s, const State& state) {
    wait_full(shared.q, state);
    const uint64_t q = k_major(shared.q.tile[state.stage]);
    wgmma_fence();
    if constexpr (kHasDk)
      issue_key_scores<T, kHeadDim, kTileKeys>(
          s, wgmma_advance(k_major(shared.k), number * kRowsPerWarpgroup * kPanelRowBytes), q);
    else
      issue_scores<T>(s, left, q);
  }

  /// Issues dK += dS^T Q, or dK = dS^T Q, as one group, with the part of dS that this warpgroup has written.
  template <typename DsTile>
  __device__ __forceinline__ void issue_dk(const DsTile& ds_tile, int stage, bool accumulate) {
    const uint64_t ds = wgmma_advance(mn_major(ds_tile), number * kQueries * kPanelRowBytes),
                   q = mn_major(shared.q.tile[stage]);
    wgmma_pin(dk);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kQueries / kMmaK; ++step)
      wgmma<T, kHeadDim, Major::mn, Major::mn>(dk, wgmma_advance(ds, step * kMmaK * kPanelRowBytes),
                                               wgmma_advance(q, step * kMmaK * kPanelRowBytes),
                                               step > 0 || accumulate);
    wgmma_commit();
  }

  /// Returns which queries of the tile in a stage see the thread's two keys, if not all do.
  __device__ __forceinline__ void ask_both(uint32_t (&seen)[2], int stage) const {
    seen[0] = seen[1] = 0;
    if (this->is_partial(stage)) seen[0] = this->ask(stage, 0), seen[1] = this->ask(stage, 1);
  }

  /// s = P^T, from the scores of a stage.
  __device__ __forceinline__ void to_p(Scores& s, const uint32_t (&seen)[2], int stage) const {
    if (this->is_partial(stage)) this->hide(s, seen);
    to_probabilities(s, shared.lse[stage], problem.scale_log2);
  }

  //| ## Rounds that sum dV
  //|
  //| K stays in registers, so S^T reads half as much shared memory. The tensor cores compute the next round's
  //| S^T during this round's exponentials. Three stages of Q give TMA a round to load the next tile.
  /// Processes a round whose scores are complete. kHasNext: another round follows.
  template <bool kHasNext>
  __device__ __forceinline__ void add_values(Scores& scores, State& state) {
    Scores next;
    Fragments<kQueries> p;
    uint32_t seen[2];
    if constexpr (kHasNext) issue_s(next, state.next());
    ask_both(seen, state.stage);
    to_p(scores, seen, state.stage);
    round_to_fragments<T>(p, scores);
    __syncwarp();  // all lanes have read the numbers that came with the stage
    release(shared.q, state);
    wait_full(shared.d_o, state);
    wgmma_pin(dv);
    wgmma_pin(p);
    wgmma_fence();
    issue_accumulate<T>(dv, p, mn_major(shared.d_o.tile[state.stage]));
    wgmma_wait<0>();
    wgmma_pin(dv);
    wgmma_pin(p);
    release(shared.d_o, state);
    if constexpr (kHasNext) {
      wgmma_pin(next);
#pragma unroll
      for (int i = 0; i < kQueries / 2; ++i) scores[i] = next[i];
    }
    state.advance();
  }

  //| ## Rounds that sum dK and dQ
  //|
  //| V stays in registers. The tensor cores compute dP^T and the previous round's dK during the mask and the
  //| exponentials. The previous round's dS is in shared memory anyway, for dQ, so dK reads it there and it
  //| takes no registers. It needs Q of the previous round, so there are three stages of Q, and space for one
  //| of dO.
  //|
  //| The first round has no previous one. A branch around the product would add fences (C7519), so it
  //| multiplies whatever is in shared memory, and the second round's dK overwrites the sum.
  /// Processes round `round` of the work.
  __device__ __forceinline__ void add_keys_and_queries(State& state, DoState& do_state, float* dq_sums,
                                                       int round) {
    Scores scores, dp;
    uint32_t seen[2];
    const uint32_t parity = do_state.phase;  // dO has one stage
    auto& ds_tile = shared.ds[parity];
    issue_s(scores, state);
    wait_full(shared.d_o, do_state);
    wgmma_fence();
    issue_scores<T>(dp, left, k_major(shared.d_o.tile[do_state.stage]));
    issue_dk(shared.ds[parity ^ 1], round == 0 ? state.stage : state.previous().stage, round > 1);
    ask_both(seen, state.stage);
    wgmma_wait<2>();
    wgmma_pin(scores);
    to_p(scores, seen, state.stage);
    wgmma_wait<1>();
    wgmma_pin(dp);
    to_ds(scores, dp, shared.d[do_state.stage]);
    Fragments<kQueries> ds;
    round_to_fragments<T>(ds, scores);
    __syncwarp();  // all lanes have read D
    release(shared.d_o, do_state);
    store_transposed_to_smem(ds_tile, ds, warp_key);
    named_barrier_sync<kDsWritten, kKeyConsumerThreads>();
    float dq[Part::kFloats];
    wgmma_fence();
    issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, k_major(ds_tile), mn_major(shared.k), number, 0);
    wgmma_wait<1>();  // the previous round's dK is complete; dQ still runs
    wgmma_pin(dk);
    if (round > 0) release(shared.q, state.previous());
    wgmma_wait<0>();
    wgmma_pin(dq);
    const int row = problem.workspace_row(this->head_of(state.stage)) + work.first_row +
                    this->first_query_of(state.stage);
    if (problem.in_turns) mbarrier_wait(&shared.dq_empty[number], parity);
    add_from_registers(dq, Part::sums_of(dq_sums, row, number));
    if (problem.in_turns) {
      __syncwarp();  // all lanes have added
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.dq_full[number]);
    }
    do_state.advance();
    state.advance();
  }

  /// Processes all rounds of the work.
  __device__ __forceinline__ void run(State& state, [[maybe_unused]] DoState& do_state,
                                      [[maybe_unused]] float* dq_sums) {
    if constexpr (kHasDk)
      load_fragments(left, shared.v, warp_key, [](int column) { return column; });
    else
      load_fragments(left, shared.k, warp_key, KeyColumns<kHeadDim>::place);
    //| Rounds that sum dV read no keys in shared memory, so the next ones arrive during the last rounds.
    if (!kHasDk || work.rounds == 0) release_keys(shared);
    if (work.rounds == 0) return;
    if constexpr (!kHasDk) {
      Scores scores;
      issue_s(scores, state);
      wgmma_wait<0>();
      wgmma_pin(scores);
#pragma unroll 1
      for (int rounds = work.rounds; rounds > 1; --rounds) add_values<true>(scores, state);
      add_values<false>(scores, state);
    } else {
#pragma unroll 1
      for (int round = 0; round < work.rounds; ++round) add_keys_and_queries(state, do_state, dq_sums, round);
      release_keys(shared);
      issue_dk(shared.ds[do_state.phase ^ 1], state.previous().stage, work.rounds > 1);
      wgmma_wait<0>();
      wgmma_pin(dk);
      __syncwarp();  // all lanes have waited for their last products
      release(shared.q, state.previous());
    }
  }
};

}  // namespace flashbook::masks
