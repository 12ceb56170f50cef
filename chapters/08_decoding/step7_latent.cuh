//| # Step 7: latent attention
//|
//| **What this step is about.** One latent serves all query heads: a key of 576 elements, whose first 512 are
//| also the value. With 128 heads, each byte of it takes part in 242 FLOPs. This is the one case of decoding
//| that keeps the tensor cores busy, and `mma.sync` (steps 4 to 6) is too slow for it. So `wgmma` returns,
//| with 64 rows of queries: half of 128 heads.
//|
//| **Why it is hard.** A row of O has 512 columns in float32, so 64 rows are 128 KB, half of a
//| multiprocessor's registers. No single warpgroup can hold them: a thread would need 256 registers for O
//| alone, and the limit is 255. And 64 rows of Q take 72 KB, which leaves space in shared memory for two
//| tiles of keys, too few to load one while two are in use.
//|
//| **What this step does.** There are three warpgroups. Two have half of O each, 256 columns. The third keeps
//| Q in its registers, computes the scores of every tile and their softmax, and passes the probabilities on
//| through shared memory. With Q out of the way, a third tile of keys fits, and the score products read half
//| as much shared memory, only the keys.
//|
//| **Budget.** Shared memory: three stages of 72 KB, 10 KB of Q that does not fit in registers, 1 KB of
//| barriers and sums: all that a block may have. Registers per thread: Q 124 and scores 32, or O 128.
//|
//| ![Three warpgroups: one computes the scores and the probabilities of all tiles, two multiply them by half
//| of the values each](../../docs/figures/latent_halves.svg)
#pragma once
#include "chapters/08_decoding/softmax.cuh"
#include "chapters/08_decoding/step7_latent_loads.cuh"
#include "chapters/08_decoding/step7_latent_merge.cuh"
#include "common/ptx/barrier.h"
#include "common/ptx/fence.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/tma.h"

namespace flashbook::decoding {

//| ## From scores to P
//|
//| The score warpgroup masks its scores, finds the rows' new maxima, and writes P to shared memory. With P it
//| writes the correction by which earlier O must be multiplied, which is 1 unless a maximum grows by much.
//|
//| **Past the last key** there may be anything. The mask overwrites a score, but not a value, and 0 times NaN
//| is NaN. So the last tile's rows past the end are zeroed in shared memory before any product reads them.

/// Computes P from scores and publishes it: the tile in `stage`, whose first key is `first_key`, with `keys`
/// keys from there to the end. `turn`: the slot of its corrections. The warpgroup that computes scores.
template <typename T>
__device__ __forceinline__ void publish(LatentShared<T>& shared, float (&scores)[32], Rows& rows,
                                        const Problem& problem, const Segment& segment, int stage,
                                        int first_key, int keys, int turn) {
  const unsigned thread = thread_number() % kWarpgroup;
  const int lane = thread % 32, in_tile = row_in_tile(thread);
  auto& panels = shared.keys[stage].element;
  if (keys < LatentKernelTraits::kKeys || problem.causal) {
    int last[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      last[r] =
          problem.last_key(segment.length, segment.row_tile * LatentKernelTraits::kRows + in_tile + 8 * r);
    mask(scores, last, first_key);
  }
  float correction[2];
  online_softmax<true>(scores, rows, correction, problem.scale_log2);

  //| P replaces the ninth panel. A warp's 16 rows go where the descriptor expects them, 16 keys at a time.
  named_barrier_sync<kScores, kWarpgroup>();  // all four warps' products have read the ninth panel
  auto* p = reinterpret_cast<unsigned char*>(panels[LatentKernelTraits::kPosition]);
  const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t matrices[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) matrices[i] = pack<T>(scores[step * 8 + 2 * i], scores[step * 8 + 2 * i + 1]);
    stmatrix_x4(p + swizzled(Swizzle::b128, row * 128 + step * 32 + lane / 16 * 16), matrices);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (lane % 4 == 0) shared.correction[turn][in_tile + 8 * r] = correction[r];

  //| Zeros: eight panels of 8 pieces for each row past the last key.
  if (keys < LatentKernelTraits::kKeys) {
#pragma unroll 1
    for (int i = thread; i < (LatentKernelTraits::kKeys - keys) * 64; i += kWarpgroup)
      *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(panels[i % 64 / 8][keys + i / 64]) +
                                i % 8 * 16) = uint4{};
  }
  fence_proxy_async();  // this thread's writes become visible to wgmma
  __syncwarp();
  if (lane == 0) mbarrier_arrive(&shared.published[stage]);
}

//| ## In turn on the tensor cores
//|
//| Follow the tensor cores:
//|
//| | tensor cores | scores | values, both halves |
//| |---|---|---|
//| | S of tile t + 1 | waits for its scores | have P of tile t, and wait until these scores are computed |
//| | O += P V of tile t | softmax of tile t + 1 | wait for their products, release the tile |
//|
//| **Values wait for scores that they do not need.** Otherwise S of the next tile and P V of this one would
//| share the tensor cores and end at the same time, with nothing left to hide the softmax. If only one half
//| waits, a call takes 8 % longer ([the table](appendix.md#latents-scores-by-one-warpgroup)).
//|
//| **Two slots for corrections.** Those of tile t overwrite those of tile t - 2, which both halves must have
//| read. Both have done so once they have released the last third of tile t - 2, which both of them read.

/// Computes the scores of a segment's tiles, and P from them. `rows` receives maxima and sums. The warpgroup
/// that computes scores.
template <typename T>
__device__ __forceinline__ void make_scores(LatentShared<T>& shared, LatentFlags& flags,
                                            uint32_t (&q)[LatentKernelTraits::kSteps][4], Rows& rows,
                                            const Problem& problem, const Segment& segment) {
  constexpr int kKeys = LatentKernelTraits::kKeys, kLastBox = LatentKernelTraits::kBoxes - 1;
  float scores[32];
  int stage = 0;
#pragma unroll 1
  for (int tile = segment.begin; tile < segment.end; ++tile) {
    const int next = next_stage(stage), keys = segment.length - tile * kKeys;
    issue_scores(scores, q, shared, uniform(stage), flags.of(stage));
    //| While the tensor cores work, make sure that the corrections of two tiles ago have been read, so that
    //| these may replace them.
    mbarrier_wait(&shared.empty[next][kLastBox], flags.of(next) ^ 1);  // tile - 2 has been added
    wgmma_wait<0>();
    wgmma_pin(scores);
    wgmma_pin(q);
    if (thread_number() % 32 == 0) mbarrier_arrive(&shared.scored[stage]);
    publish(shared, scores, rows, problem, segment, stage, tile * kKeys, keys, flags.of(kTurn));
    flags.flip(stage);
    flags.flip(kTurn);
    stage = next;
  }
  //| The rows' sums take the next slot for corrections, so the tile before the last must have been added,
  //| too.
  mbarrier_wait(&shared.empty[next_stage(stage)][kLastBox], flags.of(next_stage(stage)) ^ 1);
}

/// Adds P V of a segment's tiles to the warpgroup's half of O. For the two warpgroups that have O.
template <typename T>
__device__ __forceinline__ void add_values(LatentShared<T>& shared, LatentFlags& flags, float (&output)[128],
                                           const CUtensorMap& map, const LatentCache& cache,
                                           const Problem& problem, const Segment& segment, int warpgroup) {
  int stage = 0;
#pragma unroll 1
  for (int tile = segment.begin; tile < segment.end; ++tile) {
    const int next = next_stage(stage), in_tile = row_in_tile(thread_number());
    mbarrier_wait(&shared.published[stage], flags.of(stage));
    //| P is ready. If a maximum has grown by much, earlier O must be corrected.
    const float* corrections = shared.correction[flags.of(kTurn)];
    const float correction[2] = {corrections[in_tile], corrections[in_tile + 8]};
    if (__any_sync(kWholeWarp, correction[0] != 1 || correction[1] != 1)) rescale_rows(output, correction);
    //| This wait lets the products hide the softmax; after the last tile there is nothing to wait for.
    if (tile + 1 < segment.end) mbarrier_wait(&shared.scored[next], flags.of(next));
    issue_accumulate(output, shared, uniform(stage), warpgroup);
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, stage, warpgroup);
    flags.flip(stage);
    flags.flip(kTurn);
    //| The right half releases a tile last, so it requests the next tile for the same stage.
    if (warpgroup == 1)
      fill(shared, map, cache, problem, stage, flags.of(stage), segment, tile + LatentKernelTraits::kStages);
    stage = next;
  }
}

//| ## The end of a segment
//|
//| The warpgroup that computes the scores has the rows' sums and maxima. It writes the log-sum-exp itself,
//| and passes on the inverse of the sum the way it does corrections. The others store their halves: to O, or
//| as a part to the workspace. [The blocks that have parts of an
//| item](step7_latent_merge.cuh#all-blocks-merge), a tile of rows with all its keys, merge them together. In
//| steps 4 to 6 the last to arrive merges them alone. Here it would have to read 64 rows of 512 columns from
//| each of the others, megabytes, while all other multiprocessors idle.

/// Publishes the sums of a segment's rows. The warpgroup that computes scores.
template <typename T>
__device__ __forceinline__ void announce_rows(LatentShared<T>& shared, const Rows& rows,
                                              const Problem& problem, const Segment& segment,
                                              const LatentParts& parts, int turn,
                                              float* lse) {  // [batch, heads, seqlen_q]
  const unsigned thread = thread_number() % kWarpgroup;
  //| This barrier is not needed for correctness. But without it, or with the branches below in a different
  //| order, ptxas keeps the stage and the flags of the loop before in per-thread registers rather than
  //| uniform ones, which takes 2.6 % longer with 128 heads.
  named_barrier_sync<kScores, kWarpgroup>();
  const Pack of = problem.pack_of(segment.pack);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int in_tile = row_in_tile(thread) + 8 * r;
    const float sum = quad_sum(rows.sum[r]), row_lse = log_sum_exp(rows.max[r] * problem.scale_log2, sum);
    const int row = segment.row_tile * LatentKernelTraits::kRows + in_tile;
    if (thread % 4 != 0) continue;
    //| One of four lanes has the row's sum. A row that has seen no key gets 0, and a log-sum-exp of -inf.
    //| Nothing is written for rows past the pack's last: the merge processes stale data there, each row
    //| separately, and does not store it.
    shared.correction[turn][in_tile] = sum > 0 ? 1 / sum : 0;
    if (row >= problem.rows()) continue;
    if (segment.parts > 1) {
      const int64_t place = parts.place(segment.row_tile, segment.first_block, segment.part);
      parts.row(place, 0, in_tile).lse = parts.row(place, 1, in_tile).lse = row_lse;
    } else {
      lse[problem.number(of, row)] = row_lse;
    }
  }
  __syncwarp();
  if (thread % 32 == 0) mbarrier_arrive(&shared.rows_known);
}

/// Divides the warpgroup's half by its rows' sums and stores it. For the two warpgroups that have O.
template <typename T>
__device__ __forceinline__ void finish_rows(LatentShared<T>& shared, float (&output)[128],
                                            const Problem& problem, const Segment& segment,
                                            const LatentParts& parts, const LatentFlags& flags, int warpgroup,
                                            T* o) {  // [batch, heads, seqlen_q, 512], strided
  const unsigned thread = thread_number();
  const int in_tile = row_in_tile(thread);
  mbarrier_wait(&shared.rows_known, flags.of(kSegment));
  const float* inverses = shared.correction[flags.of(kTurn)];
  const float inverse[2] = {inverses[in_tile], inverses[in_tile + 8]};
  //| A warp whose 16 rows are all past the pack's last has nothing to store, and the merge does not read its
  //| part.
  const int first_row = segment.row_tile * LatentKernelTraits::kRows;
  if (first_row + in_tile / 16 * 16 >= problem.rows()) return;
  //| Both kinds of result are normalised.
  if (segment.parts > 1)
    return store_part(parts, parts.place(segment.row_tile, segment.first_block, segment.part), warpgroup,
                      in_tile, output, inverse);
  const Pack of = problem.pack_of(segment.pack);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + in_tile + 8 * r;
    if (row >= problem.rows()) continue;
    //| A thread has pairs of columns, eight apart.
    T* to = o + problem.offset(problem.o_strides, of, row) + warpgroup * LatentKernelTraits::kHalf +
            thread % 4 * 2;
#pragma unroll
    for (int i = 2 * r; i < 128; i += 4)
      *reinterpret_cast<uint32_t*>(to + i / 4 * 8) =
          pack<T>(output[i] * inverse[r], output[i + 1] * inverse[r]);
  }
}

//| ## The kernel
//|
//| Each tile of rows has its own blocks, which share the keys. All tiles of rows divide the keys alike, as
//| step 6 does. So the two blocks with the 128 heads of a sequence read the same keys at about the same time,
//| and one of them finds them in the L2. They are neighbours in the grid, so they start together. (If all
//| blocks for the first tile of rows came before those for the second, shapes of 128 heads took 2 to 20 %
//| longer, depending on the card: [the table](appendix.md#one-long-sequence-of-latents).)
//|
//| O, or Q, takes most of a thread's registers. So the current segment and the place in the plan are in
//| shared memory: one copy for the warpgroups that have O, one for the warpgroup that computes scores. The
//| plan counts blocks along x. Here x is the tile of rows and the blocks that share keys are along y, so two
//| numbers of a segment are set again.

/// Stores a segment, and the place in the plan after it. One thread.
__device__ __forceinline__ void write_down(Segment next, const PlaceInPlan& at, Segment& segment,
                                           PlaceInPlan& place) {
  next.row_tile = int(blockIdx.x);
  next.part = int(blockIdx.y) - next.first_block;
  segment = next;
  place = at;
}

/// Goes on to the next segment, if there is one. `kThreads` threads that use `kBarrier` share `segment` and
/// `place`.
template <int kBarrier, int kThreads, int kKeys, typename PlanType>
__device__ __forceinline__ bool next_segment(Segments<kKeys, PlanType>& segments, Segment& segment,
                                             PlaceInPlan& place) {
  segments.at = place;
  Segment next;
  if (!segments.next(next)) return false;
  named_barrier_sync<kBarrier, kThreads>();  // all are done with the previous segment
  if (thread_number() % kThreads == 0) write_down(next, segments.at, segment, place);
  named_barrier_sync<kBarrier, kThreads>();  // all see the new segment
  return true;
}

/// Computes latent attention. Grid: {tiles of rows, blocks that share the keys}; shared memory: LatentShared.
template <typename T, typename PlanType>
__global__ void __launch_bounds__(LatentKernelTraits::kThreads, 1)
    latent(const T* q,                               // [batch, heads, seqlen_q, 576], strided
           const __grid_constant__ CUtensorMap map,  // map of the cache; a box is 3 panels of 64 keys
           T* o,                                     // [batch, heads, seqlen_q, 512], strided
           float* lse,                               // [batch, heads, seqlen_q]
           LatentCache cache, LatentParts parts, Problem problem, PlanType plan) {
  static_assert(sizeof(LatentShared<T>) <= kMaxSharedBytes, "more shared memory than a block may have");
  constexpr int kStages = LatentKernelTraits::kStages, kLast = kStages - 1;
  LatentShared<T>& shared = *dynamic_shared<LatentShared<T>>();
  //| One thread initialises the barriers. Meanwhile the other warps work out which keys the block has, and
  //| one stores its first segment.
  if (threadIdx.x == 0) {
    tma_prefetch(map);
    initialise(shared);
  }
  Segments<LatentKernelTraits::kKeys, PlanType> segments(plan, problem, gridDim.y);
  segments.begin(blockIdx.y);
  Segment first;
  const bool has_segment = segments.next(first);
  if (threadIdx.x == kWarpgroup && has_segment)
    for (int i = 0; i < 2; ++i) write_down(first, segments.at, shared.segment[i], shared.place[i]);
  __syncthreads();

  //| The warpgroup that computes scores requests two tiles, takes the queries that the others have loaded to
  //| the third stage, and requests the third tile.
  const int warpgroup = __shfl_sync(kWholeWarp, threadIdx.x / kWarpgroup, 0);
  LatentFlags flags;
  if (warpgroup == 2) {
    setmaxnreg_inc<LatentKernelTraits::kScoreRegisters>();
    const Segment& segment = shared.segment[1];
    uint32_t in_registers[LatentKernelTraits::kSteps][4];
    for (bool more = has_segment; more;
         more = next_segment<kScores, kWarpgroup>(segments, shared.segment[1], shared.place[1])) {
      //| (One loop, so that `fill` is in the code only once.)
#pragma unroll 1
      for (int stage = 0; stage < kStages; ++stage) {
        if (stage == kLast) {
          named_barrier_sync<kQueries, LatentKernelTraits::kThreads>();  // the others have loaded them
          take_queries(in_registers, shared, shared.keys[kLast]);
        }
        fill(shared, map, cache, problem, stage, flags.of(stage), segment, segment.begin + stage);
      }
      Rows rows = Rows::none();
      make_scores(shared, flags, in_registers, rows, problem, segment);
      announce_rows(shared, rows, problem, segment, parts, flags.of(kTurn), lse);
      flags.flip(kTurn);
      flags.flip(kSegment);
    }
    return;
  }

  //| The two warpgroups that have O.
  setmaxnreg_dec<LatentKernelTraits::kValueRegisters>();
  const Segment& segment = shared.segment[0];
  int shared_items = 0;
  for (bool more = has_segment; more; more = next_segment<kValues, LatentKernelTraits::kConsumers>(
                                          segments, shared.segment[0], shared.place[0])) {
    load_latent_queries(shared, shared.keys[kLast], q, problem, segment);
    float output[128] = {};
    add_values(shared, flags, output, map, cache, problem, segment, warpgroup);
    finish_rows(shared, output, problem, segment, parts, flags, warpgroup, o);
    flags.flip(kTurn);
    flags.flip(kSegment);
    //| A part of a shared item waits in the workspace until all its parts are stored.
    if (segment.parts > 1) {
      if (threadIdx.x == 0) shared.with_others[shared_items] = segment;
      ++shared_items;
      announce_part(parts, segment);
    }
    if (shared.place[0].left > 0) continue;
    //| After its last segment the block has stored all its parts. Now it helps to merge the items that it
    //| shares with others: two at most, the one that it began with and the one that it ended with.
    auto& warp_parts = reinterpret_cast<MergedPiece(&)[LatentKernelTraits::kWarps][32]>(shared.keys[0]);
    for (int i = 0; i < shared_items; ++i)
      merge_share(warp_parts, parts, shared.with_others[i], problem, o, lse);
    if (int(threadIdx.x) < shared_items) count_seen(parts, shared.with_others[threadIdx.x]);
  }
}

}  // namespace flashbook::decoding
