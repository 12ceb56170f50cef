//| # Keys of 192 columns and values of 128
//|
//| DeepSeek's keys and values have tiles of their own widths. dK and dV of 64 keys take 160 of a thread's
//| registers. Scores and dP, 32 each, no longer fit next to them and the fragments of P and dS. But dV takes
//| P in 16 bits, so P is rounded before dP^T is computed, and dS is computed from the rounded P.
#pragma once
#include "chapters/09_masks/step6_backward_block.cuh"

namespace flashbook::masks {

//| Three stages of Q, of which dK still reads one while the next is on its way, leave space for one of dO.
/// The version for wide keys.
struct WideTraits : GradientKernelTraits<192, Sums::all, 128> {
  static constexpr bool kAddByTma = false;
  static constexpr int kStages = 3, kDoStages = 1, kDsStages = 2;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
};

//| ## A consumer
//|
//| Masks, sums and stores are those of the other versions; the rounds are its own.
/// A thread of a consumer, for one tile of keys.
template <typename T, typename Traits, typename Mask, typename Score>
struct WideGradients : Gradients<T, Traits, Mask, Score> {
  using Base = Gradients<T, Traits, Mask, Score>;
  using Base::kHeadDim, Base::kQueries;
  using Base::shared, Base::problem, Base::work, Base::number, Base::warp_key, Base::dk, Base::dv;
  using Part = typename Base::Part;
  using Scores = typename Base::Scores;
  using State = typename Base::State;
  using DoState = PipelineState<kDoStages<Traits>>;
  static_assert(Mask::kByIntervals && std::is_same_v<Score, Unchanged>, "the other versions take the rest");
  static_assert(Part::kPieces == 1, "each warpgroup computes half of dQ's columns at once");
  static constexpr int kWarpgroupBytes = kRowsPerWarpgroup * kPanelRowBytes;  ///< of its keys in a panel
  using Base::Base;

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

  /// ds = dS^T, from the fragments of P^T and dP^T of the tile of dO in a stage.
  __device__ __forceinline__ void to_ds(Fragments<kQueries>& ds, const Fragments<kQueries>& p,
                                        const Scores& dp, int stage) const {
    const auto* column_pairs = reinterpret_cast<const float2*>(shared.d[stage]) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kQueries / 2; i += 2) {
      const float2 d = column_pairs[i / 4 * 4];
      const uint32_t both = p[i / 8][i / 2 % 4];
      const float2 own = std::is_same_v<T, __half> ? unpack_f16(both) : unpack_bf16(both);
      ds[i / 8][i / 2 % 4] = pack<T>(own.x * (dp[i] - d.x), own.y * (dp[i + 1] - d.y));
    }
  }

  //| ## The round
  //|
  //| dP^T takes the registers that S^T has left, so it cannot run during the exponentials. The previous
  //| round's dK does. Its dS is in shared memory anyway, for dQ, so dK reads it there and it takes no
  //| registers. It needs Q of the previous round. While dS is computed, dV runs.
  //|
  //| The first round has no previous one. A branch around the product would add fences (C7519), so it
  //| multiplies whatever is in shared memory, and the second round's dK overwrites the sum.
  /// Processes round `round` of the work.
  __device__ __forceinline__ void step(State& state, DoState& do_state, float* dq_sums, int round) {
    const uint32_t parity = do_state.phase;  // dO has one stage
    auto& ds_tile = shared.ds[parity];
    Scores scores, dp;
    Fragments<kQueries> p, ds;
    wait_full(shared.q, state);
    wgmma_fence();
    issue_key_scores<T, kHeadDim, kTileKeys>(scores,
                                             wgmma_advance(k_major(shared.k), number * kWarpgroupBytes),
                                             k_major(shared.q.tile[state.stage]));
    issue_dk(shared.ds[parity ^ 1], round == 0 ? state.stage : state.previous().stage, round > 1);
    uint32_t seen[2] = {0, 0};
    if (this->is_partial(state.stage))
      seen[0] = this->ask(state.stage, 0), seen[1] = this->ask(state.stage, 1);
    wgmma_wait<1>();  // S^T is complete; the previous round's dK still runs
    wgmma_pin(scores);
    if (this->is_partial(state.stage)) this->hide(scores, seen);
    to_probabilities(scores, shared.lse[state.stage], problem.scale_log2);
    round_to_fragments<T>(p, scores);
    wait_full(shared.d_o, do_state);
    wgmma_pin(dv);
    wgmma_pin(p);
    wgmma_fence();
    issue_scores<T, Traits::kValueDim, kTileKeys>(dp,
                                                  wgmma_advance(k_major(shared.v), number * kWarpgroupBytes),
                                                  k_major(shared.d_o.tile[do_state.stage]));
    issue_accumulate<T>(dv, p, mn_major(shared.d_o.tile[do_state.stage]));
    wgmma_wait<1>();  // dP^T and the previous round's dK are complete; dV still runs
    wgmma_pin(dp);
    wgmma_pin(dk);
    __syncwarp();  // all lanes have read where the previous round's queries are
    if (round > 0) release(shared.q, state.previous());
    to_ds(ds, p, dp, do_state.stage);
    store_transposed_to_smem(ds_tile, ds, warp_key);
    named_barrier_sync<kDsWritten, kKeyConsumerThreads>();  // both halves of dS have been written
    wgmma_wait<0>();
    wgmma_pin(dv);
    wgmma_pin(p);
    release(shared.d_o, do_state);
    float dq[Part::kFloats];
    wgmma_fence();
    issue_dq<T, kHeadDim, kTileKeys, kQueries>(dq, k_major(ds_tile), mn_major(shared.k), number, 0);
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

  /// Processes all rounds of the work, and ends with the last round's dK.
  __device__ __forceinline__ void run(State& state, DoState& do_state, float* dq_sums) {
#pragma unroll 1
    for (int round = 0; round < work.rounds; ++round) step(state, do_state, dq_sums, round);
    release_keys(shared);
    if (work.rounds == 0) return;
    issue_dk(shared.ds[do_state.phase ^ 1], state.previous().stage, work.rounds > 1);
    wgmma_wait<0>();
    wgmma_pin(dk);
    __syncwarp();  // all lanes have waited for their last products
    release(shared.q, state.previous());
  }
};

}  // namespace flashbook::masks
