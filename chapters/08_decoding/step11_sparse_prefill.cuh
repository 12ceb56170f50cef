//| # Step 11: sparse prefill
//|
//| **What this step does.** A warpgroup of producers gathers keys by `cp.async`. Two warpgroups hold O, half
//| of its columns each, and compute the scores, each for every other tile
//| ([why](sparse.md#step-11-two-warpgroups-that-share-scores)).
//|
//| **Budget.** Shared memory: 72 KB of Q, two tiles of 72 KB, 8 KB of P. Registers per thread: O 128, scores
//| 32, P 16. Producers have 72 registers.
#pragma once
#include "chapters/08_decoding/softmax.cuh"
#include "chapters/08_decoding/sparse_tiles.cuh"
#include "chapters/08_decoding/step7_latent.cuh"

namespace flashbook::decoding {

//| ## Two tiles in turn
//|
//| The warpgroups work half a round apart: while one turns its scores into P, the tensor cores multiply for
//| the other. Both add the first tile's values before the second's. A row's maximum alternates between them:
//| the left one raises it for the first tile and passes it on with P, and the right one raises it for the
//| second tile and passes it back. Each makes its half of O relative to a tile's maxima just before it adds
//| that tile's values, so P never needs a correction.

/// Scores of keys that do not exist become -inf. `exist`: a word of SparseShared::exist for each lane of a
/// quad.
__device__ __forceinline__ void hide_missing(float (&scores)[32], const uint16_t (&exist)[4]) {
  const unsigned own = exist[threadIdx.x % 4];
  __syncwarp();  // all lanes have read theirs before one of them releases the tile
  if (__all_sync(kWholeWarp, own == 0xffff)) return;
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if ((own & 1u << (i / 4 * 2 + i % 2)) == 0) scores[i] = -INFINITY;
}

/// Issues a half of the scores of a tile, as one group, when it has landed. `kSecond`: the other half's
/// product is already issued, and this one adds to it.
template <int kHalf, bool kSecond>
__device__ __forceinline__ void issue_half(float (&scores)[32], SparseShared& shared, int tile,
                                           uint32_t phase) {
  constexpr int kFirst = kHalf * LatentKernelTraits::kHalfPanels;
  mbarrier_wait(&shared.full[tile][kHalf], phase);
  fence_proxy_async();  // what the producers wrote becomes visible to wgmma
  const uint64_t q = wgmma_descriptor<Swizzle::b128>(shared.queries.element[kFirst], 16, kAtomBytes);
  const uint64_t k = wgmma_descriptor<Swizzle::b128>(shared.keys[tile].element[kFirst], 16, kAtomBytes);
  if (!kSecond) wgmma_pin(scores);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < (LatentKernelTraits::kHalfPanels + kHalf) * 4; ++step) {
    const uint32_t at = step / 4 * kPanelBytes + step % 4 * 32;
    wgmma<__nv_bfloat16, 64>(scores, wgmma_advance(q, at), wgmma_advance(k, at), kSecond || step > 0);
  }
  wgmma_commit();
}

/// Returns the descriptor of the values of a tile that a warpgroup adds: its half of the columns.
__device__ __forceinline__ uint64_t values_of(SparseShared& shared, int tile, int side) {
  return wgmma_descriptor<Swizzle::b128>(shared.keys[tile].element[side * LatentKernelTraits::kHalfPanels],
                                         kPanelBytes, kAtomBytes);
}

/// Issues output += P V with P in shared memory, as one group.
__device__ __forceinline__ void issue_passed(float (&output)[128], const void* passed, uint64_t values) {
  const uint64_t p = wgmma_descriptor<Swizzle::b128>(passed, 16, kAtomBytes);
  wgmma_pin(output);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step)
    wgmma<__nv_bfloat16, LatentKernelTraits::kHalf, Major::k, Major::mn>(
        output, wgmma_advance(p, step * 32), wgmma_advance(values, step * 16 * kPanelRowBytes), true);
  wgmma_commit();
}

/// Passes P, and the maxima to which it is relative, to the other warpgroup, which waits at `kPassed`. `to`:
/// 64 rows of 64 probabilities.
template <int kPassed>
__device__ __forceinline__ void pass(SparseShared& shared, void* to, const uint32_t (&p)[4][4],
                                     const Rows& rows) {
  const unsigned thread = thread_number() % kWarpgroup;
  const int row = thread / 32 * 16 + thread % 16, right = thread % 32 / 16 * 16;
#pragma unroll
  for (int step = 0; step < 4; ++step)
    stmatrix_x4(static_cast<unsigned char*>(to) + swizzled(Swizzle::b128, row * 128 + step * 32 + right),
                p[step]);
  if (thread % 4 == 0)
    for (int r = 0; r < 2; ++r) shared.max[row_in_tile(thread) + 8 * r] = rows.max[r];
  fence_proxy_async();  // this thread's writes become visible to wgmma
  named_barrier_arrive<kPassed, SparseTraits::kConsumers>();
}

/// Signals that this warp's warpgroup has read a half of a tile.
__device__ __forceinline__ void release(SparseShared& shared, int tile, int half) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.empty[tile][half]);
}

/// Returns whether a row of the warp has a correction other than 1.
__device__ __forceinline__ bool any_correction(const float (&correction)[2]) {
  return __any_sync(kWholeWarp, correction[0] != 1 || correction[1] != 1);
}

/// Makes `rows` relative to the other warpgroup's maxima, which are at least as large.
__device__ __forceinline__ void take_maxima(SparseShared& shared, Rows& rows, float (&correction)[2],
                                            float scale_log2) {
  const int row = row_in_tile(thread_number());
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float raised = shared.max[row + 8 * r], base = raised == -INFINITY ? 0.0f : raised;
    correction[r] = exp2_approx((rows.max[r] - base) * scale_log2);
    rows.max[r] = raised;
    rows.sum[r] *= correction[r];
  }
  __syncwarp();  // all lanes have read the maxima, which may now be replaced
}

/// Issues output += P V with P in registers, as one group.
__device__ __forceinline__ void issue_own(float (&output)[128], uint32_t (&p)[4][4], uint64_t values) {
  wgmma_pin(output);
  wgmma_pin(p);
  wgmma_fence();
  hopper::issue_accumulate<__nv_bfloat16>(output, p, values);
}

//| ## The left warpgroup
//|
//| P of the first tile replaces the position in its ninth panel, as in step 7: its scores are complete, and
//| the right half is released by the warpgroup that reads this P. When the last product of a round is issued,
//| so is the next round's first half of scores: the tensor cores have work while P V is waited for.

/// Attends to a segment's rounds, with scores of their first tiles and the left columns of O.
__device__ __forceinline__ void attend_left(SparseShared& shared, float (&output)[128], Rows& rows,
                                            uint32_t& phase, int rounds, float scale_log2) {
  float scores[32], correction[2];
  uint32_t p[4][4];
  issue_half<0, false>(scores, shared, 0, phase);
  issue_half<1, true>(scores, shared, 0, phase);
  wgmma_wait<0>();
  wgmma_pin(scores);
#pragma unroll 1
  for (; rounds > 0; --rounds) {
    hide_missing(scores, shared.exist[0]);
    online_softmax<true>(scores, rows, correction, scale_log2);
    round_to_fragments<__nv_bfloat16>(p, scores);
    pass<kFirstP>(shared, shared.keys[0].element[LatentKernelTraits::kPosition], p, rows);
    if (any_correction(correction)) rescale_rows(output, correction);
    issue_own(output, p, values_of(shared, 0, 0));
    wgmma_wait<0>();
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared, 0, 0);
    named_barrier_sync<kSecondP, SparseTraits::kConsumers>();
    take_maxima(shared, rows, correction, scale_log2);
    if (any_correction(correction)) rescale_rows(output, correction);
    issue_passed(output, shared.p.element, values_of(shared, 1, 0));
    phase ^= 1;
    if (rounds > 1) {
      issue_half<0, false>(scores, shared, 0, phase);
      wgmma_wait<1>();
      release(shared, 1, 0);
      issue_half<1, true>(scores, shared, 0, phase);
    }
    wgmma_wait<0>();
    wgmma_pin(output);
    wgmma_pin(scores);
    if (rounds == 1) release(shared, 1, 0);
  }
}

//| ## The right warpgroup
//|
//| Its softmax runs while the first tile's P V does. So O is corrected afterwards.

/// Attends to a segment's rounds, with scores of their second tiles and the right columns of O.
__device__ __forceinline__ void attend_right(SparseShared& shared, float (&output)[128], Rows& rows,
                                             uint32_t& phase, int rounds, float scale_log2) {
  float scores[32], correction[2];
  uint32_t p[4][4];
#pragma unroll 1
  for (; rounds > 0; --rounds) {
    issue_half<0, false>(scores, shared, 1, phase);
    issue_half<1, true>(scores, shared, 1, phase);
    named_barrier_sync<kFirstP, SparseTraits::kConsumers>();
    take_maxima(shared, rows, correction, scale_log2);
    if (any_correction(correction)) {
      wgmma_wait<0>();
      wgmma_pin(scores);
      rescale_rows(output, correction);
    }
    issue_passed(output, shared.keys[0].element[LatentKernelTraits::kPosition], values_of(shared, 0, 1));
    wgmma_wait<1>();
    wgmma_pin(scores);
    hide_missing(scores, shared.exist[1]);
    online_softmax<true>(scores, rows, correction, scale_log2);
    round_to_fragments<__nv_bfloat16>(p, scores);
    pass<kSecondP>(shared, shared.p.element, p, rows);
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, 0, 1);
    if (any_correction(correction)) rescale_rows(output, correction);
    issue_own(output, p, values_of(shared, 1, 1));
    wgmma_wait<0>();
    wgmma_pin(output);
    wgmma_pin(p);
    release(shared, 1, 1);
    phase ^= 1;
  }
}

//| ## The producers
//|
//| A warp has 16 keys of each tile, and all four warps load each half together, in the order in which halves
//| become free. Eight lanes copy 128 bytes of a key, a row of a panel, to places that the swizzle exchanges,
//| as TMA would. Rows 16 apart are swizzled alike, so other rows and panels are constant offsets from one
//| address.
//|
//| **No warp waits for its copies.** An mbarrier tracks them: each lane's arrival follows when its copies
//| have landed, and the warp goes on to the next half. So up to four halves are in flight. The fence between
//| the copies and `wgmma` is left to the consumers, which run when the copies have landed.
//|
//| **A list is read a round ahead.** The index of a key must be known before its first byte can be requested,
//| and two trips to memory in a row would be too late. A lane finds the places of two keys, one of each tile,
//| and the eight lanes that copy one get its place by a shuffle.

/// Keys in bf16, gathered by cp.async: 72 pieces of 16 bytes.
struct GatheredKeys {
  /// Arrivals at `full` of a half: those of all copies, and each warp's, which publishes the keys' bits.
  static constexpr int arrivals(int) { return 128 + 4; }
  static constexpr int kProducerRegisters = 72, kConsumerRegisters = 216;

  /// Loads the tiles of units `unit` ... `end` - 1, as soon as their places are free. Four warps.
  __device__ static void produce(SparseShared& shared, const SparseCache& cache, const SparseProblem& problem,
                                 const EvenPlan& plan, int unit, int end) {
    const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32 % 4, 0), lane = threadIdx.x % 32;
    const int entry = entry_of_lane(warp);
    int places = place_of(cache, problem, plan, unit, listed_key(cache, plan, unit, entry));
#pragma unroll 1
    for (uint32_t phase = 1; unit < end; phase ^= 1) {
      const int next = listed_key(cache, plan, ++unit, entry);
      const unsigned exist = __ballot_sync(kWholeWarp, places >= 0);
#pragma unroll
      for (int step = 0; step < 4; ++step) {  // halves, in the order in which they become free
        const int tile = step / 2, half = step % 2;
        mbarrier_wait(&shared.empty[tile][half], phase);
        uint4* to = piece_of(shared.keys[tile], row_of_bit(warp, lane / 8), half * 256 + lane % 8 * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = __shfl_sync(kWholeWarp, places, tile * 16 + 4 * i + lane / 8);
          const uint4* from = cache.keys + unsigned(max(at, 0) + half * 32 + lane % 8);
#pragma unroll
          for (int panel = 0; panel < LatentKernelTraits::kHalfPanels + half; ++panel)
            cp_async_cg(to + (i * 16 * kPanelRowBytes + panel * kPanelBytes) / 16, from + panel * 8,
                        at >= 0 ? 16 : 0);
        }
        cp_async_arrive(&shared.full[tile][half]);
        if (tile == half && lane == 0) shared.exist[tile][warp] = uint16_t(exist >> 16 * tile);
        if (lane == 0) mbarrier_arrive(&shared.full[tile][half]);
      }
      places = place_of(cache, problem, plan, unit, next);
    }
  }
};

//| ## The kernel
//|
//| As in step 7, a block takes a share of all rounds, the units of the plan, and blocks that share an item
//| merge it at the end. With a long prompt every block has many tokens, one after another, and its producers
//| load the next token's keys while its consumers store O.

/// Loads a segment's queries. Rows past the last head become zeros. All consumers.
__device__ __forceinline__ void load_sparse_queries(SparseShared& shared, const __nv_bfloat16* q,
                                                    const SparseProblem& problem, const Segment& segment) {
  const int lane = threadIdx.x % 32, first = segment.row_tile * SparseTraits::kRows;
  const Pack of = problem.pack_of(segment.pack);
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < SparseTraits::kRows; row += 8) {
    const bool exists = first + row < problem.rows();
    const __nv_bfloat16* from = q + (exists ? problem.offset(problem.q_strides, of, first + row) : 0);
#pragma unroll
    for (int column = lane * 8; column < kLatentKeyDim; column += 256)
      cp_async_cg(piece_of(shared.queries, row, column), from + column, exists ? 16 : 0);
  }
  cp_async_wait_all();
  fence_proxy_async();                                      // this thread's rows become visible to wgmma,
  named_barrier_sync<kValues, SparseTraits::kConsumers>();  // and all have arrived
}

/// Divides O by its rows' sums, and stores O and the log-sum-exp, or a part. All consumers.
__device__ __forceinline__ void finish(SparseShared& shared, float (&output)[128], const Rows& rows,
                                       const SparseProblem& problem, const Segment& segment,
                                       const LatentParts& parts, int side, __nv_bfloat16* o, float* lse) {
  const int in_tile = row_in_tile(threadIdx.x), first = segment.row_tile * SparseTraits::kRows;
  float inverse[2], row_lse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(rows.sum[r]);
    if (threadIdx.x % 4 == 0) shared.sum[side][in_tile + 8 * r] = sum;
  }
  named_barrier_sync<kValues, SparseTraits::kConsumers>();  // both have stored their sums
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = shared.sum[0][in_tile + 8 * r] + shared.sum[1][in_tile + 8 * r];
    inverse[r] = sum > 0 ? 1 / sum : 0;
    row_lse[r] = log_sum_exp(rows.max[r] * problem.scale_log2, sum);
  }
  //| A warp whose 16 rows are all past the last head has nothing to store, and the merge does not read its
  //| part.
  if (first + in_tile / 16 * 16 >= problem.rows()) return;
  if (segment.parts > 1) {
    const int64_t place = parts.place(segment.row_tile, segment.first_block, segment.part);
    if (threadIdx.x % 4 == 0)
      for (int r = 0; r < 2; ++r) parts.row(place, side, in_tile + 8 * r).lse = row_lse[r];
    return store_part(parts, place, side, in_tile, output, inverse);
  }
  const Pack of = problem.pack_of(segment.pack);
  rescale_rows(output, inverse);
  store_from_registers<__nv_bfloat16>(output, first + in_tile, problem.rows(), [&](int row) {
    return o + problem.offset(problem.o_strides, of, row) + side * LatentKernelTraits::kHalf;
  });
  if (side == 0 && threadIdx.x % 4 == 0)
    for (int r = 0; r < 2; ++r)
      if (first + in_tile + 8 * r < problem.rows())
        lse[problem.number(of, first + in_tile + 8 * r)] = row_lse[r];
}

/// Computes sparse latent attention. Grid: {tiles of heads, blocks that share the tokens}; shared memory:
/// SparseShared. `Keys` loads keys as a cache stores them.
template <typename Keys>
__global__ void __launch_bounds__(SparseTraits::kThreads, 1)
    sparse_latent(const __nv_bfloat16* q,  // [tokens, heads, 576], strided
                  __nv_bfloat16* o,        // [tokens, heads, 512], strided
                  float* lse,              // [batch, heads, tokens of a batch entry]
                  SparseCache cache, LatentParts parts, SparseProblem problem, EvenPlan plan) {
  SparseShared& shared = *dynamic_shared<SparseShared>();
  Segments<SparseTraits::kRoundKeys, EvenPlan> segments(plan, problem, gridDim.y);
  segments.begin(blockIdx.y);
  Segment first;
  const bool has_segment = segments.next(first);
  if (threadIdx.x == 0) {
    initialise(shared, Keys::arrivals(0), Keys::arrivals(1));
    if (has_segment) write_down(first, segments.at, shared.segment, shared.place);
  }
  __syncthreads();

  const int warpgroup = __shfl_sync(kWholeWarp, threadIdx.x / kWarpgroup, 0);
  if (warpgroup == 2) {
    setmaxnreg_dec<Keys::kProducerRegisters>();
    const int unit = int(blockIdx.y) * plan.units_per_block;
    Keys::produce(shared, cache, problem, plan, unit, min(unit + plan.units_per_block, plan.units));
    return;
  }
  setmaxnreg_inc<Keys::kConsumerRegisters>();
  const Segment& segment = shared.segment;
  int shared_items = 0;
  uint32_t phase = 0;
  for (bool more = has_segment; more;
       more = next_segment<kValues, SparseTraits::kConsumers>(segments, shared.segment, shared.place)) {
    load_sparse_queries(shared, q, problem, segment);
    float output[128] = {};
    Rows rows = Rows::none();
    const int rounds = segment.end - segment.begin;
    //| (The warpgroup's number would take a register from one segment to the next.)
    const int side = int(thread_number()) / kWarpgroup;
    if (side == 0)
      attend_left(shared, output, rows, phase, rounds, problem.scale_log2);
    else
      attend_right(shared, output, rows, phase, rounds, problem.scale_log2);
    finish(shared, output, rows, problem, segment, parts, side, o, lse);
    if (segment.parts > 1) {
      if (threadIdx.x == 0) shared.with_others[shared_items] = segment;
      ++shared_items;
      announce_part(parts, segment);
    }
    if (shared.place.left > 0) continue;
    auto& warp_parts = reinterpret_cast<MergedPiece(&)[LatentKernelTraits::kWarps][32]>(shared.keys[0]);
    for (int i = 0; i < shared_items; ++i)
      merge_share(warp_parts, parts, shared.with_others[i], problem, o, lse);
    if (int(threadIdx.x) < shared_items) count_seen(parts, shared.with_others[threadIdx.x]);
  }
}

}  // namespace flashbook::decoding
