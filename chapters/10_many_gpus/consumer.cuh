//| # A consumer
//|
//| This is a consumer's work on one tile of queries: the loop of chapter 5's step 5, with the problem's type
//| as a parameter. With documents, a tile of queries has a separate problem.
//|
//| ![Three threads of warpgroup 0 and the consumers, what they share in memory, and its
//| barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include <type_traits>

#include "common/hopper/block.h"
#include "common/hopper/epilogue.h"
#include "common/hopper/mask.h"
#include "common/hopper/pingpong.h"
#include "common/hopper/pipeline.h"
#include "common/hopper/softmax.h"
#include "common/hopper/tile_scheduler.h"

namespace flashbook::many_gpus {

using namespace hopper;

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

//| ## A consumer
//|
//| A thread of a consumer keeps everything in registers. A new Consumer is made for every tile of queries: if
//| scores and output lived on from one to the next, ptxas would run out of registers at d = 256 and insert a
//| wait after every product (warning C7512).

/// A thread of a consumer, for one tile of queries.
template <typename T, typename Traits, typename AnyProblem>
struct Consumer {
  static constexpr int kHeadDim = Traits::kHeadDim, kKeys = Traits::kKeys;
  static constexpr uint32_t kTileBytes = sizeof(Tile<T, kKeys, kHeadDim>);

  //| References and constants first. The compiler keeps all of it in registers: every function below is
  //| inlined, and no Consumer is stored in memory. `state` belongs to the kernel, since the pipeline
  //| continues from tile to tile of queries while a Consumer ends.
  PersistentShared<T, Traits>& shared;
  const AnyProblem& problem;
  PipelineState<Traits::kStages>& state;  ///< place in the pipeline; continues from tile to tile
  const uint32_t parity;                  ///< parity of the number of previous tiles of queries
  const int number;                       ///< index of this consumer
  const int first_query, query;           ///< the warpgroup's first row; the first of this thread's two
  const uint64_t q, keys, values;         ///< descriptors of its queries, and of stage 0 as K and as V
  float output[kHeadDim / 2], scores[kKeys / 2];
  Fragments<kKeys> p;
  SoftmaxRows<Traits::kLazy> rows;

  //| The descriptors are recomputed for each Consumer, from constants, which saves the registers that would
  //| hold them.
  __device__ __forceinline__ Consumer(PersistentShared<T, Traits>& shared, const AnyProblem& problem,
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
  //| These two and the last P V are the loop of chapter 5 in pieces: the first scores alone, then scores and
  //| P V together, then P V alone. `begin` starts a tile of queries: it sets O and the sums to zero. After
  //| the last scores the queries have been read, so their buffer is released, and TMA can load the next ones
  //| during the remaining work.
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
    take_turn<Traits>(number);
    wgmma_pin(output);
    wgmma_pin(p);
    wgmma_fence();
    issue_scores<T, kHeadDim>(scores, q, wgmma_advance(keys, k_state.stage * kTileBytes));
    wait_full(shared.pipeline, v_state);
    wgmma_fence();
    issue_accumulate<T>(output, p, wgmma_advance(values, v_state.stage * kTileBytes));
    pass_turn<Traits>(number);

    //| The two waits are also as in chapter 5. Between them is the softmax, during which the product with V
    //| still runs. K's stage is released after the first wait, V's after the second.
    wgmma_wait<1>();  // the scores are done; the product with V still runs
    wgmma_pin(scores);
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

    //| `softmax_lazily` returned whether any row of the warp needs its output rescaled. With lazy rescaling,
    //| hardly any row does after the first few tiles, and the branch is the same for the whole warp.
    wgmma_wait<0>();  // P V is done: P may be overwritten, O rescaled
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared.pipeline, v_state);
    round_to_fragments<T>(p, scores);
    if (rescale) rescale_rows(output, correction);
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
    //| The last product also takes a pingpong turn, and releases its stage, since the producer has begun to
    //| load the next tile's keys (`common/hopper/epilogue.h`).
    last_values<T, Traits>(output, p, values, shared.pipeline, state, number);
  }
};

}  // namespace flashbook::many_gpus
