//| # Step 9: the layout that people have
//|
//| **What step 6 leaves.** Its copies bring bytes that lie next to each other. In `[batch, kv_heads, seqlen, d]` a tile of
//| one head is such a piece of memory. But FlashAttention, Hugging Face, vLLM and FlashInfer all store
//| `[batch, seqlen, kv_heads, d]`: a token's heads are neighbours, and a head's next key is `kv_heads * d` elements away.
//| There step 6 needs a copy per key, 128 of them per tile, and one warp cannot issue that many.
//|
//| **What this step does.** A tensor map knows the distance from key to key. One instruction then brings a *box*: many keys
//| of one head, whatever lies between them. Without a swizzle, TMA puts the rows of a box next to each other, which is
//| exactly where step 6's copies put them. So nothing changes for the consumers: this file only has a producer of its own.
//|
//| **Budget.** As in step 4, plus two tensor maps of 128 bytes among the kernel's parameters.
//|
//| ![A producer warp keeps three stages of 32 KB filled; eight consumer warps each take 16 keys of a tile and merge at the end](../../docs/figures/decode_ring.svg)
#pragma once
#include "chapters/08_decoding/step4_ring.cuh"

namespace flashbook::decoding {

//| ## Boxes
//|
//| A map has four dimensions: {column, key in its page, key head, page}. Without pages, a sequence counts as a page of its
//| own. A box is `Cache::copy_rows` keys of one head: a page, or the part of a page that fits into a tile.

/// The maps of keys and values.
struct KeyMaps {
  CUtensorMap k, v;  ///< {column, key in its page, key head, page}
  bool in_boxes;     ///< false: bytes lie next to each other, and step 4's copies bring them
};

/// Boxes of up to this many keys where no page makes them smaller: boxes beyond a sequence's end are not
/// read, so smaller ones waste fewer bytes.
constexpr int kBoxKeys = 64;

//| ## The producer
//|
//| Each lane issues a box. A box that begins behind the last key is left out, so the stage expects the bytes of the others.
//| The last box may reach beyond the sequence's end. It brings whatever the cache holds there, and as in step 4 no consumer
//| reads it.

template <typename Traits, typename PlanType>
__device__ __forceinline__ void produce_boxes(RingShared<Traits>& shared, const KeyMaps& maps,
                                              const Cache& cache, const Problem& problem,
                                              const PlanType& plan,
                                              Segments<Traits::kKeys, PlanType>& segments) {
  const int lane = threadIdx.x % 32, box_keys = cache.copy_rows;
  const int row_bytes = plan.template columns<Traits::kHeadDim>() * Traits::kElementBytes;
  const int tiles_at_once = 32 / cache.copies;  // whose pages are looked up
  PipelineState<Traits::kStages> state;
  Segment segment;
  while (segments.next(segment)) {
    const Pack of = problem.pack_of(segment.pack);
    const int start = plan.first_key_of(problem, of.batch, segment.length);
    /// The page that has a key, if there is such a key.
    const auto page_of = [&](int key) {
      if (cache.table == nullptr) return of.batch;
      return key < segment.length ? cache.table[of.batch * cache.pages_of_sequence + (key >> cache.page_bits)]
                                  : 0;
    };
    const auto look_up = [&](int tile) {
      return page_of(start + (tile + lane / cache.copies) * Traits::kKeys + lane % cache.copies * box_keys);
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
      const int keys = min(Traits::kKeys, (segment.length - first_key + box_keys - 1) & -box_keys);
#pragma unroll 1
      for (int tensor = 0; tensor < 2; ++tensor) {  // K, then V
        wait_empty(shared.ring, state);
        uint64_t* full = &shared.ring.full[state.stage];
        if (lane == 0) mbarrier_arrive_expect_tx(full, keys * row_bytes);
        __syncwarp();  // the barrier knows of the bytes before any can land
        //| With pages of 1 to 3 keys a tile has more boxes than the warp has lanes, and each lane issues several.
        for (int in_tile = lane * box_keys; in_tile < keys; in_tile += 32 * box_keys) {
          const int key = first_key + in_tile;
          int in_page = cache.table == nullptr ? key : key & ((1 << cache.page_bits) - 1);
          if constexpr (PlanType::kWindow) in_page += plan.rows_before(of.batch);
          tma_load(shared.ring.tile[state.stage].byte + in_tile * row_bytes, tensor == 0 ? maps.k : maps.v,
                   full, {0, in_page, of.kv_head, in_tile == lane * box_keys ? page : page_of(key)},
                   cache.keep);
        }
        __syncwarp();
        state.advance();
      }
    }
    for (int i = 0; i < Traits::kMergeStages; ++i) {
      wait_empty(shared.ring, state);
      __syncwarp();  // all lanes have seen the stage empty
      if (lane == 0) mbarrier_arrive(&shared.ring.full[state.stage]);
      state.advance();
    }
  }
}

//| ## The kernel
//|
//| It differs from step 4's in the maps, and in the producer that reads them. A cache whose bytes already lie next to each
//| other keeps step 4's copies: they end where the sequence does.

/// Attention of all tiles of rows. Grid: as many blocks as the plan wants; shared memory: RingShared.
/// `PlanType` is Plan, or Rules.
template <typename T, typename Traits, typename PlanType>
__global__ void __launch_bounds__(Traits::kThreads, Traits::kBlocks)
    ring_of_boxes(const __grid_constant__ KeyMaps maps,
                  const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
                  T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
                  float* lse,  // [batch, heads, seqlen_q]
                  CacheOf<Traits> cache, Workspace workspace, Problem problem, PlanType plan) {
  using Shared = RingShared<Traits>;
  static_assert(sizeof(Shared) <= kMostSharedBytes, "more shared memory than a block may have");
  Shared& shared = *dynamic_shared<Shared>();
  if (threadIdx.x == Traits::kConsumers && maps.in_boxes) {
    tma_prefetch(maps.k);
    tma_prefetch(maps.v);
  }
  if (threadIdx.x == 0) {
    initialise(shared.ring, 1, Traits::kWarps, "full", "empty");
    fence_mbarrier_init();  // TMA sees the barriers,
  }
  Segments<Traits::kKeys, PlanType> segments(plan, problem, gridDim.x);
  segments.begin(blockIdx.x);  // all the other warps, meanwhile
  __syncthreads();             // and so do all threads
  if (threadIdx.x / 32 == Traits::kWarps) {
    if (maps.in_boxes) return produce_boxes<Traits>(shared, maps, cache, problem, plan, segments);
    return produce<Traits>(shared, cache, problem, plan, segments);
  }
  consume<T, Traits>(shared, cache, problem, plan, segments, workspace, q, o, lse);
}

}  // namespace flashbook::decoding
