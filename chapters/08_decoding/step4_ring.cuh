//| # Steps 4 to 6: a deep ring, narrow tiles, and the last to arrive merges
//|
//| **The limit of step 3.** A block waits for a tile, works on it, and only then requests the next. While it
//| works, nothing is in flight, and the multiprocessor's second block covers only part of that time. To read
//| at full rate, memory must always have about a microsecond's worth of requests, 32 KB per multiprocessor,
//| and in practice two or three times that.
//|
//| **What this step does.** Shared memory holds a ring of three stages of 32 KB, and a producer warp does
//| nothing except request the next tile as soon as a stage is free. So up to 96 KB are in flight. (Seven
//| stages read no faster, and a block of 227 KB starts later.) The rest follows from the goal of reading all
//| the time:
//|
//| * **Narrow tiles.** A group of 4 or 8 heads fills only a few of `wgmma`'s 64 rows. `mma.sync` multiplies
//|   16 rows, with operands in registers. Chapter 5 abandoned it because it cannot use the tensor cores' full
//|   rate, but decoding does not need that rate: 16 rows do 16 FLOPs per byte of memory, and the tensor cores
//|   could do some 200.
//| * **Warps that own keys.** Each warp takes 16 of a tile's keys at a time and has its own maximum, sum and
//|   output, so that no warp waits for another between tiles. They merge when the block is done with an item.
//| * **No second kernel** for up to 48 parts. An atomic counter determines which warp arrives last, and that
//|   warp merges: see `finish_parts` ([`last_arriver.cuh`](last_arriver.cuh)).
//|
//| **Budget** (d = 128): a ring of 3 x 32 KB, and 2 KB of barriers and sums. Registers of a consumer: Q 32, O
//| 64, scores 8.
//|
//| ![A producer warp keeps three stages of 32 KB filled; eight consumer warps each take 16 keys of a tile and
//| merge at the end](../../docs/figures/decode_ring.svg)
#pragma once
#include "chapters/08_decoding/last_arriver.cuh"
#include "common/ptx/bulk_copy.h"

namespace flashbook::decoding {

//| ## The producer
//|
//| One warp fills two stages per tile. Keys and values have separate stages, so that the keys' stage is free
//| as soon as the scores are computed. Without pages a tile is one copy, which ends where the sequence does.
//|
//| **Pages.** With pages a copy loads one page, or a tile's part of it. Each lane issues one copy, whose
//| address comes from the table. That look-up takes as long as loading a key, and longer while all blocks
//| read. So the 32 lanes look up the pages of 32 copies at a time, several tiles' worth, and the next 32
//| while these are being issued.
//|
//| If a head's keys are not contiguous (`[batch, seqlen, heads, head_dim]`), each row is a separate copy.

template <typename Traits, typename PlanType>
__device__ __forceinline__ void produce(RingShared<Traits>& shared, const Cache& cache,
                                        const Problem& problem, const PlanType& plan,
                                        Segments<Traits::kKeys, PlanType>& segments) {
  const int lane = threadIdx.x % 32, own_rows = lane * cache.copy_rows;  // keys before the lane's first copy
  const int tiles_at_once = 32 / cache.copies;                           // tiles whose pages are looked up
  const int row_bytes = plan.template columns<Traits::kHeadDim>() * Traits::kElementBytes;
  PipelineState<Traits::kStages> state;
  Segment segment;
  while (segments.next(segment)) {
    const Pack of = problem.pack_of(segment.pack);
    const int start = plan.first_key_of(problem, of.batch, segment.length);
    /// The page of a key, if the key exists.
    const auto page_of = [&](int key) {
      if (cache.table == nullptr) return of.batch;
      return key < segment.length ? cache.table[of.batch * cache.pages_of_sequence + (key >> cache.page_bits)]
                                  : 0;
    };
    //| Each lane holds the page of one copy: with four copies per tile, lanes 4 to 7 hold the pages of the
    //| second tile.
    const auto look_up = [&](int tile) {
      return page_of(start + (tile + lane / cache.copies) * Traits::kKeys +
                     lane % cache.copies * cache.copy_rows);
    };
    int pages = look_up(segment.begin), next_pages = look_up(segment.begin + tiles_at_once), looked_up = 0;
    for (int tile = segment.begin; tile < segment.end; ++tile, ++looked_up) {
      if (looked_up == tiles_at_once) {
        pages = next_pages;
        next_pages = look_up(tile + tiles_at_once);
        looked_up = 0;
      }
      const int page = __shfl_sync(kWholeWarp, pages, looked_up * cache.copies + lane % cache.copies);
      const int first_key = start + tile * Traits::kKeys;
      const int bytes = min(Traits::kKeys, segment.length - first_key) * row_bytes;
#pragma unroll 1  // a block's first instructions come from device memory too: the fewer, the sooner it reads
      for (int tensor = 0; tensor < 2; ++tensor) {  // K, then V
        wait_empty(shared.ring, state);
        uint64_t* full = &shared.ring.full[state.stage];
        if (lane == 0) mbarrier_arrive_expect_tx(full, bytes);
        __syncwarp();  // announce the bytes before any can land
        //| `arrive_expect_tx` has announced the bytes of the whole tile. The copies land in any order, and
        //| the last one completes the stage.
        const bool is_k = tensor == 0;
        const int64_t to_page = is_k ? cache.k_strides.batch : cache.v_strides.batch;
        const int64_t to_row = is_k ? cache.k_strides.row : cache.v_strides.row;
        const unsigned char* head =
            is_k ? cache.k + of.kv_head * cache.k_strides.head : cache.v + of.kv_head * cache.v_strides.head;
        for (int in_tile = own_rows; in_tile < Traits::kKeys; in_tile += 32 * cache.copy_rows) {
          const int key = first_key + in_tile;
          const int rows = min(cache.copy_rows, segment.length - key);
          if (rows <= 0) break;
          int in_page = cache.table == nullptr ? key : key & ((1 << cache.page_bits) - 1);
          if constexpr (PlanType::kWindow) in_page += plan.rows_before(of.batch);
          bulk_load(shared.ring.tile[state.stage].byte + in_tile * row_bytes,
                    head + (in_tile == own_rows ? page : page_of(key)) * to_page + in_page * to_row,
                    rows * row_bytes, full, cache.keep);
        }
        __syncwarp();
        state.advance();
      }
    }
    //| At the end of a segment the warps merge in the ring's memory. The producer hands out stages for it in
    //| their usual turn, without filling them. With no bytes to wait for, lane 0's arrival alone completes
    //| such a stage, so it must come after all lanes have waited. Otherwise a lane that is still waiting
    //| could miss two phases of `empty` and wait forever.
    for (int i = 0; i < Traits::kMergeStages; ++i) {
      wait_empty(shared.ring, state);
      __syncwarp();  // all lanes have seen the stage empty
      if (lane == 0) mbarrier_arrive(&shared.ring.full[state.stage]);
      state.advance();
    }
  }
}
//| ## A segment's tiles
//|
//| A *chunk* is 16 keys. A warp computes the scores of its chunks, which frees the keys' stage, then the
//| softmax, then the values. Chunks past the last key are skipped, since no copy fills them.

/// Returns the first of the thread's two rows of the pack; the other is 8 further.
template <typename Traits>
__device__ __forceinline__ int row_of_pack(const Segment& segment) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  return segment.row_tile * Traits::kRows + warp / Traits::kKeyWarps * kRowsPerMma + lane / 4;
}

//| **Before a window.** With pages, the first copy may load keys that no query sees. Their probabilities are
//| 0, but their values may be NaN, and 0 times NaN is NaN.
/// Zeroes the values of a chunk's first `rows` keys. One warp.
template <typename Traits>
__device__ __forceinline__ void clear_hidden(Stage<Traits>& values, int chunk, int rows, int row_bytes) {
  for (int row = 0; row < min(rows, kRowsPerMma); ++row)
    for (int byte = threadIdx.x % 32 * 16; byte < row_bytes; byte += 32 * 16)
      *reinterpret_cast<uint4*>(values.byte + (chunk * kRowsPerMma + row) * row_bytes + byte) =
          make_uint4(0, 0, 0, 0);
  fence_proxy_async();  // TMA will write where threads have written
  __syncwarp();         // all lanes see the zeros
}

template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ WarpSums<Traits> attend(RingShared<Traits>& shared,
                                                   PipelineState<Traits::kStages>& state,
                                                   const Queries<Traits>& q, Scales<Traits>& scales,
                                                   const Problem& problem, const Segment& segment,
                                                   const PlanType& plan, int key_warp) {
  //| A warp takes one or two chunks at a time: as many scores as fit in registers along with Q and the
  //| output.
  constexpr int kAtOnce = Traits::kChunksAtOnce;
  const int first_key = plan.first_key_of(problem, segment.pack / problem.packs, segment.length);
  const int hidden = plan.hidden_keys(problem, segment.pack / problem.packs, segment.length);
  WarpSums<Traits> sums = {{}, Rows::none()};
  for (int tile = segment.begin; tile < segment.end; ++tile) {
    const int tile_key = first_key + tile * Traits::kKeys, keys_left = segment.length - tile_key;
    const PipelineState<Traits::kStages> keys = state;
    state.advance();
    scales.begin(tile);
#pragma unroll 1  // unrolled, it would need too many registers
    for (int first = 0; first < Traits::kChunks; first += kAtOnce) {
      float scores[8 * kAtOnce];
      if (first == 0) wait_full(shared.ring, keys);  // K has landed
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        const int chunk = (first + c) * Traits::kKeyWarps + key_warp;
        float* own = scores + 8 * c;
        const int chunk_keys = keys_left - chunk * kRowsPerMma;  // keys that exist
        if (chunk_keys > 0)
          multiply_keys<T, Traits>(own, q, scales, shared.ring.tile[keys.stage], chunk, keys_left, plan);
        if constexpr (PlanType::kFunctions || PlanType::kWindow)  // score functions and the window
          if (chunk_keys > 0)
            plan.change(own, problem, segment, row_of_pack<Traits>(segment), tile_key + chunk * kRowsPerMma);
        //| Only chunks that the last key or a causal mask cuts are masked key by key.
        if (chunk_keys < kRowsPerMma || problem.causal) {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (tile_key + chunk * kRowsPerMma + column_of(i) >
                problem.last_key(segment.length, row_of_pack<Traits>(segment) + 8 * row_of(i)))
              own[i] = -INFINITY;
        }
      }
      if (!Traits::kTileByTile && first + kAtOnce == Traits::kChunks) {
        __syncwarp();                // all lanes have read their part of K,
        release(shared.ring, keys);  // so it may be overwritten
      }

      //| Most tiles leave every maximum unchanged. Then the output need not be rescaled, so the warp votes on
      //| it.
      float correction[2];
      online_softmax(scores, sums.rows, correction, problem.scale_log2);
      if (__any_sync(kWholeWarp, correction[0] != 1 || correction[1] != 1))
        rescale_rows(sums.output, correction);

      if (first == 0) wait_full(shared.ring, state);  // V has landed
#pragma unroll
      for (int c = 0; c < kAtOnce; ++c) {
        const int chunk = (first + c) * Traits::kKeyWarps + key_warp;
        if constexpr (PlanType::kWindow)
          if (tile == 0 && chunk * kRowsPerMma < hidden)
            clear_hidden<Traits>(shared.ring.tile[state.stage], chunk, hidden - chunk * kRowsPerMma,
                                 plan.template columns<Traits::kHeadDim>() * Traits::kElementBytes);
        if (chunk * kRowsPerMma < keys_left)
          multiply_values<T, Traits>(sums.output, scores + 8 * c, scales, shared.ring.tile[state.stage],
                                     chunk, keys_left, plan);
      }
    }
    __syncwarp();  // all lanes have read their part of V
    if constexpr (Traits::kTileByTile) release(shared.ring, keys);
    release(shared.ring, state);
    state.advance();
  }
  scales.finish(sums.output);
  return sums;
}

//| ## The consumers
//|
//| A consumer warp has 16 rows of the tile of queries. Warps with the same rows take turns with the chunks of
//| keys.

/// Consumes all segments of the block, in step with the producer. Consumer warps.
template <typename T, typename Traits, typename PlanType>
__device__ __forceinline__ void consume(RingShared<Traits>& shared, const CacheOf<Traits>& cache,
                                        const Problem& problem, const PlanType& plan,
                                        Segments<Traits::kKeys, PlanType>& segments,
                                        const Workspace& workspace,
                                        const T* q,    // [batch, heads, seqlen_q, kHeadDim], strided
                                        T* o,          // [batch, heads, seqlen_q, kHeadDim], strided
                                        float* lse) {  // [batch, heads, seqlen_q]
  const int warp = threadIdx.x / 32;
  const int row_in_tile = warp / Traits::kKeyWarps * kRowsPerMma, key_warp = warp % Traits::kKeyWarps;
  PipelineState<Traits::kStages> state;
  const Segment& segment = shared.segment[warp];
  for (Segment next; segments.next(next);) {
    __syncwarp();  // all lanes have read the previous segment
    if (threadIdx.x % 32 == 0) {
      shared.segment[warp] = next;
      shared.place[warp] = segments.at;
    }
    __syncwarp();  // all lanes see this one
    //| A warp keeps its place in the plan in shared memory, because its registers are full of queries and
    //| sums.
    const int first_row = segment.row_tile * Traits::kRows + row_in_tile;
    Scales<Traits> scales(cache, problem, segment,
                          plan.first_key_of(problem, segment.pack / problem.packs, segment.length));
    Queries<Traits> queries;
    load_queries<T, Traits>(queries, scales, q, problem, plan, segment.pack, first_row);
    const WarpSums<Traits> sums =
        attend<T, Traits>(shared, state, queries, scales, problem, segment, plan, key_warp);
    finish_block<T, Traits>(shared, state, sums, problem, plan, segment, workspace, o, lse);
    if (1 < segment.parts && segment.parts <= plan.parts_of_last)
      finish_parts<T, Traits>(problem, plan, segment, workspace, o, lse);
    segments.at = shared.place[warp];
  }
}

//| ## The kernel
//|
//| The last warp produces, all others consume. Each warp goes through the block's segments
//| ([`plan.cuh`](plan.cuh)) on its own.

/// Computes attention for all tiles of rows. Grid: as many blocks as the plan has; shared memory:
/// RingShared. `PlanType` is Plan, or Rules.
template <typename T, typename Traits, typename PlanType>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocks)
    ring(const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
         T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
         float* lse,  // [batch, heads, seqlen_q]
         CacheOf<Traits> cache, Workspace workspace, Problem problem, PlanType plan) {
  using Shared = RingShared<Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block may have");
  Shared& shared = *dynamic_shared<Shared>();
  //| `full` waits for the producer's lane 0 and its bytes, `empty` for one lane of each consumer warp.
  if (threadIdx.x == 0) {
    initialise(shared.ring, 1, Traits::kWarps, "full", "empty");
    fence_mbarrier_init();  // TMA sees the barriers,
  }
  Segments<Traits::kKeys, PlanType> segments(plan, problem, gridDim.x);
  segments.begin(blockIdx.x);  // meanwhile, all other warps
  __syncthreads();             // all threads see the barriers
  if (threadIdx.x / 32 == Traits::kWarps) return produce<Traits>(shared, cache, problem, plan, segments);
  consume<T, Traits>(shared, cache, problem, plan, segments, workspace, q, o, lse);
}

}  // namespace flashbook::decoding
