//| # Step 7: latent attention
//|
//| **What this step is about.** One latent serves all query heads: a key of 576 elements, whose first 512 are the value too.
//| With 128 heads each byte of it takes part in 242 FLOPs. So this is the one decoding that the tensor cores must keep up
//| with, and `mma.sync` (steps 4 to 6) is too slow for it. Here is `wgmma` again, with 64 rows of queries: half of 128 heads.
//|
//| **What is hard.** A row of O has 512 columns in float32. 64 rows of it are 128 KB, half of a multiprocessor's registers.
//| No warpgroup can hold them: a thread would need 256 registers for O alone, and 255 is the most that it may have.
//|
//| **What this step does.** Two warpgroups hold 256 columns of O each. Both need all of P, and it would be a waste to compute
//| the scores twice. So they take turns: the first makes the scores of even tiles of keys, the second those of odd ones, and
//| each hands its probabilities over through shared memory. FlashMLA calls this order a seesaw.
//|
//| **Budget.** Shared memory: Q 72 KB, two stages of 72 KB, 3 KB of sums and barriers. Registers of a thread: O 128, scores 32.
//|
//| ![O's two halves: each warpgroup makes the scores of every other tile, and multiplies the probabilities of all tiles by its half of the values](../../docs/figures/latent_halves.svg)
#pragma once
#include "chapters/08_decoding/softmax.cuh"
#include "chapters/08_decoding/step7_latent_merge.cuh"
#include "common/ptx/barrier.h"
#include "common/ptx/fence.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/tma.h"

namespace flashbook::decoding {

/// Where the pages are. Without a table a sequence is one page.
struct LatentCache {
  const int* table;  ///< [batch, pages_of_sequence], or null
  int page_rows;     ///< a multiple of LatentKernelTraits::kKeys, if there is a table
  int pages_of_sequence;
};

//| ## The producer
//|
//| A *panel* is 64 columns of a tile, and a key has nine ([`step7_latent_tiles.cuh`](step7_latent_tiles.cuh)). One thread asks for a tile in three
//| copies of three panels, each with a barrier of its own. The first products begin when the first third is there. A third's place is
//| filled again as soon as *its* last reader is done. The first third holds values of the first warpgroup only, so its place need not wait
//| for the second one. (The second one reads the first third of an odd tile too, as keys. But it is done with that before it hands P over,
//| and only then does the first one multiply.) Nine copies are as fast. Eighteen, to give back half of a tile's keys early, are far
//| slower where one thread asks for them ([the table](appendix.md#one-long-sequence-of-latents)).
//|
//| A tile never crosses a page, since a page has 64 keys or a multiple. The warp looks up the pages of 32 tiles at a time, a lane
//| each, and the next 32 while these are being asked for. Without a table the batch entry stands in the place of the page.

template <typename T>
__device__ __forceinline__ void produce(LatentShared<T>& shared, const CUtensorMap& map,
                                        const LatentCache& cache, const Problem& problem,
                                        Segments<LatentKernelTraits::kKeys>& segments) {
  LatentPhases phases;
  for (Segment segment; segments.next(segment);) {
    const Pack of = problem.pack_of(segment.pack);
    const auto page_of = [&](int tile) {
      const int key = tile * LatentKernelTraits::kKeys;
      if (cache.table == nullptr || tile >= segment.end) return of.batch;
      return cache.table[of.batch * cache.pages_of_sequence + key / cache.page_rows];
    };
    //| Even tiles of a segment go to the first stage, odd ones to the second. A segment may end with an even tile, so each
    //| stage has a phase of its own.
    const int lane = threadIdx.x % 32;
    int pages = 0, next_pages = page_of(segment.begin + lane);
    for (int tile = segment.begin; tile < segment.end; ++tile) {
      const int looked_up = (tile - segment.begin) % 32, stage = looked_up % 2;
      if (looked_up == 0) {
        pages = next_pages;
        next_pages = page_of(tile + 32 + lane);
      }
      const int page = __shfl_sync(kWholeWarp, pages, looked_up);
      const int key = tile * LatentKernelTraits::kKeys,
                row = cache.table == nullptr ? key : key % cache.page_rows;
      //| The five indices of a box: column 0 of the panel, row, panel, key head, page.
      if (lane == 0) {
        for (int box = 0; box < LatentKernelTraits::kBoxes; ++box) {
          uint64_t* full = &shared.full[stage][box];
          const int panel = box * LatentKernelTraits::kBoxPanels;
          mbarrier_wait(&shared.empty[stage][box], phases.of(stage) ^ 1);  // all have read the tile before
          mbarrier_arrive_expect_tx(full, LatentKernelTraits::kBoxPanels * kPanelBytes);
          tma_load(shared.keys[stage].element[panel], map, full, {0, row, panel, of.kv_head, page});
        }
      }
      phases.advance(stage);
    }
  }
}

//| ## Queries
//|
//| A tile's rows are heads of one query, then heads of the next, so in general they are no box of a tensor. Threads bring
//| them, 16 bytes at a time, to where the swizzle wants them. It happens once a segment, while the first keys travel.
//|
//| **All loads come before the first store.** In one loop each store waits for its load, and each load for the store before it: the
//| compiler must assume that both may mean the same place. The eight rows of a warp were eight trips to memory, 11 µs at the start of
//| each segment ([the table](appendix.md#one-long-sequence-of-latents)). Now they are one trip.

/// Brings rows `first_row` ... of a pack. Rows beyond the pack's last are zeros. All consumers.
template <typename T>
__device__ __forceinline__ void load_latent_queries(LatentTile<T>& tile,
                                                    const T* q,  // [batch, heads, seqlen_q, 576], strided
                                                    const Problem& problem, const Pack& of, int first_row) {
  constexpr int kPieces = kLatentKeyDim / 8;  // of a row, 16 bytes each
  constexpr int kRowsOfWarp = LatentKernelTraits::kRows / LatentKernelTraits::kWarps,
                kOfLane = (kPieces + 31) / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint4 loaded[kRowsOfWarp][kOfLane];
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int row = first_row + warp * kRowsOfWarp + r;
    const bool exists = row < problem.rows();
    const T* from = q + (exists ? problem.offset(problem.q_strides, of, row) : 0);
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int piece = lane + 32 * i;
      loaded[r][i] = exists && piece < kPieces ? *reinterpret_cast<const uint4*>(from + piece * 8) : uint4{};
    }
  }
  //| A row's 72 pieces are two for each lane, and a third for eight of them. Each goes to its panel, exchanged with others as the
  //| swizzle says.
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r)
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int piece = lane + 32 * i, row = warp * kRowsOfWarp + r;
      if (piece >= kPieces) continue;
      *piece_of(tile, row, piece * 8) = loaded[r][i];
    }
  fence_proxy_async();  // this thread's writes become visible to wgmma,
  named_barrier_sync<kBothWarpgroups, LatentKernelTraits::kConsumers>();  // and all of them are there
}

//| ## From scores to P
//|
//| The warpgroup that made the scores masks them, finds the rows' new maxima, and writes P to shared memory. Beside P it writes what
//| the other warpgroup must know: the new maximum, and what O so far must be multiplied by. Both correct their halves by the
//| same number, so O stays one matrix.
//|
//| **Behind the last key** may lie anything. A score is overwritten by the mask. A value is not: 0 times NaN is NaN. So the
//| last tile's rows behind the end are set to zero, in shared memory, before anybody multiplies by them.

/// What a thread knows of its rows of the pack.
struct LatentRows {
  Rows rows;
  int in_tile;  ///< the first of its two rows; the other is 8 further
  int last[2];  ///< the last key that they see
};

/// Makes P of scores and publishes it: the tile in `stage`, whose first key is `first_key`. One warpgroup.
/// Returns whether the warp's output must be corrected.
template <typename T>
__device__ __forceinline__ bool publish(LatentShared<T>& shared, float (&scores)[32], LatentRows& own,
                                        float (&correction)[2], const Problem& problem, int stage,
                                        int first_key, int length) {
  const int lane = threadIdx.x % 32, keys = length - first_key;
  auto& panels = shared.keys[stage].element;
  if (keys < LatentKernelTraits::kKeys || problem.causal) mask(scores, own.last, first_key);
  online_softmax<true>(scores, own.rows, correction, problem.scale_log2);

  //| A warp's 16 rows of P go where the descriptor expects them, 16 keys at a time.
  auto* p = reinterpret_cast<unsigned char*>(panels[LatentKernelTraits::kPosition]);
  const int row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t matrices[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) matrices[i] = pack<T>(scores[step * 8 + 2 * i], scores[step * 8 + 2 * i + 1]);
    stmatrix_x4(p + swizzled(Swizzle::b128, row * 128 + step * 32 + lane / 16 * 16), matrices);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (lane % 4 == 0) shared.update[stage][own.in_tile + 8 * r] = {own.rows.max[r], correction[r]};
  const bool changed = __any_sync(kWholeWarp, correction[0] != 1 || correction[1] != 1);
  if (lane == 0) reinterpret_cast<int*>(&shared.changed[stage])[threadIdx.x / 32 % 4] = changed;

  //| The zeros: eight panels of 8 pieces for each row behind the last key.
  if (keys < LatentKernelTraits::kKeys) {
    for (int i = threadIdx.x % kWarpgroup; i < (LatentKernelTraits::kKeys - keys) * 64; i += kWarpgroup)
      *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(panels[i % 64 / 8][keys + i / 64]) +
                                i % 8 * 16) = uint4{};
  }
  fence_proxy_async();  // this thread's writes become visible to wgmma
  return changed;
}

/// Takes over what the tile in `stage` did to the thread's rows. Behind the barrier that publishes it.
/// Returns whether the warpgroup's output must be corrected, the same in all of its warps.
template <typename T>
__device__ __forceinline__ bool accept(const LatentShared<T>& shared, LatentRows& own, float (&correction)[2],
                                       int stage) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const RowUpdate update = shared.update[stage][own.in_tile + 8 * r];
    own.rows.max[r] = update.max;
    own.rows.sum[r] *= correction[r] = update.correction;
  }
  const int4 changed = shared.changed[stage];
  return (changed.x | changed.y | changed.z | changed.w) != 0;
}

//| ## The seesaw
//|
//| Two tiles a round. Follow the tensor cores, which should never wait:
//|
//| | tensor cores | first warpgroup | second warpgroup |
//| |---|---|---|
//| | S of the even tile | waits for its scores | waits until they are done, then issues S of the odd tile |
//| | S of the odd tile | softmax of the even one | waits for P of the even one |
//| | O += P V, even, both halves | waits for P of the odd one | softmax of the odd one |
//| | O += P V, odd, both halves | issues the next even S when its half is done | waits for the next even scores |
//|
//| So each softmax is done while the tensor cores have the other warpgroup's products, and the stages become free one after the
//| other. The barriers have these names: `kScoresEven` (S of the even tile is computed), `kPublishedEven` and `kPublishedOdd` (P of
//| that tile is written).

/// Attends to a segment's tiles, the first warpgroup's part: scores of even tiles, the left half of `output`.
template <typename T>
__device__ __forceinline__ void attend_first(LatentShared<T>& shared, LatentPhases& phases,
                                             float (&output)[128], LatentRows& own, const Problem& problem,
                                             const Segment& segment) {
  float scores[32], correction[2];
  for (int tile = segment.begin; tile < segment.end; tile += 2) {
    issue_scores(scores, shared, 0, phases.of(0));
    const bool has_odd = tile + 1 < segment.end;
    wgmma_wait<0>();
    wgmma_pin(scores);
    if (has_odd) named_barrier_arrive<kScoresEven, LatentKernelTraits::kConsumers>();
    if (publish(shared, scores, own, correction, problem, 0, tile * LatentKernelTraits::kKeys,
                segment.length))
      rescale_rows(output, correction);
    //| A warp has written its 16 rows of P, and any warp may have set values to zero. So first the four warps wait for one
    //| another. Then they only tell the other warpgroup, and go on.
    named_barrier_sync<kFirstWarpgroup, kWarpgroup>();  // P of the even tile is whole
    named_barrier_arrive<kPublishedEven, LatentKernelTraits::kConsumers>();
    issue_accumulate(output, shared, 0, 0);
    phases.advance(0);
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, 0, 0);
    //| Before it waits for the other one's P it gives its half of the even tile back: where memory is slow, the odd tile is
    //| still on its way, and the producer needs the room at once.
    if (!has_odd) return;
    named_barrier_sync<kPublishedOdd, LatentKernelTraits::kConsumers>();  // the other one's P is there
    if (accept(shared, own, correction, 1)) rescale_rows(output, correction);
    issue_accumulate(output, shared, 1, 0);
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, 1, 0);
    phases.advance(1);
  }
}

//| The second warpgroup issues its scores before it takes the first one's P: they are computed while it waits for that. Scores and output
//| may be on their way at once, since their products add to different registers. But a thread must not change O while a product of
//| scores runs, or ptxas makes all products wait for one another. So where O must be corrected, the thread waits for its scores first.

/// The second warpgroup's part: scores of odd tiles, the right half of `output`.
template <typename T>
__device__ __forceinline__ void attend_second(LatentShared<T>& shared, LatentPhases& phases,
                                              float (&output)[128], LatentRows& own, const Problem& problem,
                                              const Segment& segment) {
  float scores[32], correction[2];
  int tile = segment.begin;
  for (; tile + 1 < segment.end; tile += 2) {
    named_barrier_sync<kScoresEven,
                       LatentKernelTraits::kConsumers>();  // the tensor cores are done with the even ones
    issue_scores(scores, shared, 1, phases.of(1));
    named_barrier_sync<kPublishedEven, LatentKernelTraits::kConsumers>();  // the other one's P is there
    if (accept(shared, own, correction, 0)) {
      wgmma_wait<0>();
      wgmma_pin(scores);
      rescale_rows(output, correction);
    }
    //| Of two groups on their way the scores are the older one. While threads make P of them, the tensor cores multiply by the
    //| even tile's values.
    issue_accumulate(output, shared, 0, 1);
    wgmma_wait<1>();
    wgmma_pin(scores);
    const bool changed = publish(shared, scores, own, correction, problem, 1,
                                 (tile + 1) * LatentKernelTraits::kKeys, segment.length);
    named_barrier_sync<kSecondWarpgroup, kWarpgroup>();  // P of the odd tile is whole
    named_barrier_arrive<kPublishedOdd, LatentKernelTraits::kConsumers>();
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, 0, 1);
    if (changed) rescale_rows(output, correction);
    issue_accumulate(output, shared, 1, 1);
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, 1, 1);
    phases.advance(1);
  }
  //| A segment of an odd number of tiles ends with an even one, of which the second warpgroup has no scores to make.
  if (tile < segment.end) {
    named_barrier_sync<kPublishedEven, LatentKernelTraits::kConsumers>();
    if (accept(shared, own, correction, 0)) rescale_rows(output, correction);
    issue_accumulate(output, shared, 0, 1);
    wgmma_wait<0>();
    wgmma_pin(output);
    release(shared, 0, 1);
  }
}

//| ## The end of a segment
//|
//| Each warpgroup has summed the probabilities of its own tiles. Both used the same maxima, so their two sums together are the row's.
//| Then each stores its half: to O, or as a part to the workspace. [The blocks that have parts of an item](step7_latent_merge.cuh#everybody-merges), which is a tile
//| of rows with all its keys, merge them together. In steps 4 to 6 the last to arrive does it alone. Here it would have to read 64 rows of
//| 512 columns from each of the others, megabytes, while all other multiprocessors are done.

//| The warpgroups exchange their sums through shared memory, once a segment. After the barrier behind the exchange nobody reads Q any more,
//| so the next segment may bring its own.

/// Divides the warpgroup's half by its rows' sums and stores it. All consumers.
template <typename T>
__device__ __forceinline__ void finish_rows(LatentShared<T>& shared, float (&output)[128],
                                            const LatentRows& own, const Problem& problem,
                                            const Segment& segment, const LatentParts& parts, int warpgroup,
                                            T* o,          // [batch, heads, seqlen_q, 512], strided
                                            float* lse) {  // [batch, heads, seqlen_q]
  const int lane = threadIdx.x % 32;
  const Pack of = problem.pack_of(segment.pack);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(own.rows.sum[r]);
    if (lane % 4 == 0) shared.sum[warpgroup][own.in_tile + 8 * r] = sum;
  }
  named_barrier_sync<kBothWarpgroups,
                     LatentKernelTraits::kConsumers>();  // both sums are there; nobody reads Q now
  //| A warp whose 16 rows all lie behind the pack's last has nothing to store. The merge does not read its part either.
  const int first_row = segment.row_tile * LatentKernelTraits::kRows;
  if (first_row + own.in_tile / 16 * 16 >= problem.rows()) return;  // the warp has no rows
  float inverse[2], row_lse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int in_tile = own.in_tile + 8 * r;
    const float sum = shared.sum[0][in_tile] + shared.sum[1][in_tile];
    inverse[r] = sum > 0 ? 1 / sum : 0;
    row_lse[r] = log_sum_exp(own.rows.max[r] * problem.scale_log2, sum);
  }
  //| What is stored is normalised in both cases, with its log-sum-exp beside it.
  if (segment.parts > 1)
    return store_part(parts, parts.place(segment.row_tile, segment.first_block, segment.part), warpgroup,
                      own.in_tile, output, inverse, row_lse);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + own.in_tile + 8 * r;
    if (row >= problem.rows()) continue;
    if (warpgroup == 0 && lane % 4 == 0) lse[problem.number(of, row)] = row_lse[r];
    //| A thread has pairs of columns, eight apart.
    T* to =
        o + problem.offset(problem.o_strides, of, row) + warpgroup * LatentKernelTraits::kHalf + lane % 4 * 2;
#pragma unroll
    for (int i = 2 * r; i < 128; i += 4)
      *reinterpret_cast<uint32_t*>(to + i / 4 * 8) =
          pack<T>(output[i] * inverse[r], output[i + 1] * inverse[r]);
  }
}

//| ## The kernel
//|
//| Each tile of rows has blocks that share the keys. All tiles of rows deal the keys out alike, as step 6 does, so the two
//| blocks that have the 128 heads of a sequence read the same keys at about the same time, and one of them finds them in the
//| L2. They are neighbours in the grid, so the machine starts them side by side. (With all blocks of the first tile of rows before those of
//| the second, shapes of 128 heads took 2 to 20 % longer, which differed from card to card:
//| [the table](appendix.md#one-long-sequence-of-latents).)

/// Latent attention. Grid: {tiles of rows, blocks that share the keys}; shared memory: LatentShared.
template <typename T>
__global__ void __launch_bounds__(LatentKernelTraits::kThreads, 1)
    latent(const T* q,                               // [batch, heads, seqlen_q, 576], strided
           const __grid_constant__ CUtensorMap map,  // of the cache: a box is 3 panels of 64 keys
           T* o,                                     // [batch, heads, seqlen_q, 512], strided
           float* lse,                               // [batch, heads, seqlen_q]
           LatentCache cache, LatentParts parts, Problem problem, Plan plan) {
  static_assert(sizeof(LatentShared<T>) <= kMostSharedBytes, "more shared memory than a block may have");
  LatentShared<T>& shared = *dynamic_shared<LatentShared<T>>();
  //| How many warps give a box of three panels back? Four give back the first box, which has values of the first warpgroup only. Eight
  //| give back the second one, which has values of both, and the last, which has values of the second warpgroup and P, which both read.
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage)
      for (int box = 0; box < LatentKernelTraits::kBoxes; ++box) {
        const int i = stage * LatentKernelTraits::kBoxes + box;
        mbarrier_init(&shared.full[stage][box], 1);
        name_mbarrier(&shared.full[stage][box], "full", i);
        mbarrier_init(&shared.empty[stage][box], box == 0 ? 4 : 8);
        name_mbarrier(&shared.empty[stage][box], "empty", i);
      }
    fence_mbarrier_init();  // TMA sees the barriers,
  }
  Segments<LatentKernelTraits::kKeys> segments(plan, problem, gridDim.y);
  segments.begin(blockIdx.y);
  __syncthreads();  // and so do all threads

  //| Two warpgroups consume. The third has one warp that produces; its other warps are there because registers change hands
  //| by whole warpgroups.
  const int warp = __shfl_sync(kWholeWarp, threadIdx.x / 32, 0), warpgroup = warp / 4;
  if (warpgroup == 2) {
    setmaxnreg_dec<LatentKernelTraits::kProducerRegisters>();
    if (warp == LatentKernelTraits::kWarps) produce(shared, map, cache, problem, segments);
    return;
  }
  setmaxnreg_inc<LatentKernelTraits::kConsumerRegisters>();

  //| O and scores take 160 of a consumer's registers. So the segment, and where the plan goes on, lie in shared memory, once for each warp.
  //| The plan counts blocks along x. Here x is the tile of rows, and the blocks that share keys lie along y: so two numbers of a
  //| segment are set anew.
  LatentPhases phases;
  const Segment& segment = shared.segment[warp];
  int shared_items = 0;
  for (Segment next; segments.next(next);) {
    __syncwarp();  // all lanes have read the segment before
    if (threadIdx.x % 32 == 0) {
      next.row_tile = int(blockIdx.x);
      next.part = int(blockIdx.y) - next.first_block;
      shared.segment[warp] = next;
      shared.place[warp] = segments.at;
    }
    __syncwarp();  // and see this one
    //| Then one segment after the other: queries, all tiles of keys, the rows' ends.
    const int first_row = segment.row_tile * LatentKernelTraits::kRows;
    load_latent_queries(shared.q, q, problem, problem.pack_of(segment.pack), first_row);
    LatentRows own = {.rows = Rows::none(), .in_tile = warp % 4 * 16 + int(threadIdx.x) % 32 / 4, .last = {}};
#pragma unroll
    for (int r = 0; r < 2; ++r)
      own.last[r] = problem.last_key(segment.length, first_row + own.in_tile + 8 * r);
    float output[128] = {};
    if (warpgroup == 0)
      attend_first(shared, phases, output, own, problem, segment);
    else
      attend_second(shared, phases, output, own, problem, segment);
    finish_rows(shared, output, own, problem, segment, parts, warpgroup, o, lse);
    if (segment.parts > 1) {
      if (threadIdx.x == 0) shared.with_others[shared_items] = segment;
      ++shared_items;
      announce_part(parts, segment);
    }
    segments.at = shared.place[warp];
    if (segments.at.left > 0) continue;
    //| After its last segment the block has stored all its parts. Now it helps to merge the items that others have parts of,
    //| too: two at most, the one that it began with and the one that it ended with. (This stands in the loop and not behind it. Behind
    //| it, ptxas kept the products' descriptors in registers of threads, which it must copy before each product, and every tile took 6 %
    //| longer.)
    auto& of_warps = reinterpret_cast<MergedPiece(&)[LatentKernelTraits::kWarps][32]>(shared.q);
    for (int i = 0; i < shared_items; ++i)
      merge_share(of_warps, parts, shared.with_others[i], problem, o, lse);
  }
}

}  // namespace flashbook::decoding
