//| # Step 9: the layout that libraries use
//|
//| **The limit of step 6.** Its copies load contiguous bytes. In `[batch, kv_heads, seqlen,
//| d]` a tile of one head is such a piece of memory. But FlashAttention, vLLM and FlashInfer all store
//| `[batch, seqlen, kv_heads, d]`: a token's heads are neighbours, and a head's next key is
//| `kv_heads * d` elements away. There step 6 needs a copy per key, 128 of them per tile, and one warp cannot
//| issue that many.
//|
//| **What this step does.** A tensor map knows the distance from key to key. One instruction then loads a
//| *box*: many keys of one head, whatever is stored between them. Without a swizzle, TMA puts the rows of a
//| box next to each other, which is exactly where step 6's copies put them. So nothing changes for the
//| consumers: this file only has a different producer.
//|
//| **Budget.** As in step 4, plus two tensor maps of 128 bytes among the kernel's parameters.
//|
//| ![A cache by token: the rows of one head come to a stage by a copy per key, or by one box, and lie there
//| side by side either way](../../docs/figures/decode_boxes.svg)
#pragma once
#include "chapters/08_decoding/step4_ring.cuh"

namespace flashbook::decoding {

//| ## Boxes
//|
//| A map has four dimensions: {column, key in its page, key head, page}. Without pages, a sequence counts as
//| one page. A box is `Cache::copy_rows` keys of one head: a page, or the part of a page that fits into a
//| tile.

/// The maps of keys and values.
struct KeyMaps {
  CUtensorMap k, v;  ///< {column, key in its page, key head, page}
  bool in_boxes;     ///< false: bytes lie next to each other, and step 4's copies load them
};

/// Boxes of up to this many keys where no page makes them smaller: boxes beyond a sequence's end are not
/// read, so smaller ones waste fewer bytes.
constexpr int kBoxKeys = 64;

//| ## Pages ahead of time
//|
//| A look-up in the table takes as long as loading a key: some microseconds while every block reads. So the
//| lanes of a producer look up the pages of 32 boxes at once, those of several tiles, and the next 32 while
//| these are being issued.

/// The pages of a segment's boxes. All lanes of a warp call its functions together, tile by tile.
class PagesAhead {
 public:
  /// `start`: the segment's first key. A tile of `keys` keys is loaded in `cache.copies` boxes.
  __device__ __forceinline__ PagesAhead(const Cache& cache, int batch, const Segment& segment, int start,
                                        int keys)
      : cache_(cache), batch_(batch), length_(segment.length), start_(start), keys_(keys) {
    next_ = look_up(segment.begin);
    left_ = 0;
  }

  //| A round of pages serves 32 / `copies` tiles. When a round is used up, the next one has arrived, and the
  //| one after that is looked up.
  /// Returns the page of box `box` of the next tile, which is `tile`.
  __device__ __forceinline__ int of(int tile, int box) {
    const int tiles_at_once = 32 / cache_.copies;
    if (left_ == 0) {
      now_ = next_;
      next_ = look_up(tile + tiles_at_once);
      left_ = tiles_at_once;
    }
    const int from = (tiles_at_once - left_--) * cache_.copies + box;
    return __shfl_sync(kWholeWarp, now_, from);
  }

  /// Returns the page of a key, if there is such a key.
  __device__ __forceinline__ int page_of(int key) const {
    if (cache_.table == nullptr) return batch_;
    return key < length_ ? cache_.table[batch_ * cache_.pages_of_sequence + (key >> cache_.page_bits)] : 0;
  }

 private:
  __device__ __forceinline__ int look_up(int tile) const {
    const int lane = threadIdx.x % 32;
    return page_of(start_ + (tile + lane / cache_.copies) * keys_ + lane % cache_.copies * cache_.copy_rows);
  }

  const Cache& cache_;
  int batch_, length_, start_, keys_;
  int now_, next_, left_;  // the lane's page of this round and of the next, and how many tiles are left
};

//| ## Two producers
//|
//| Each lane issues one box. With pages of 16 keys, a tile of keys and its values is 16 boxes, and a warp
//| issues them one after another. So one warp loads keys and another loads values. Both go through all stages
//| in the same order, each skipping those that the other fills.
//|
//| A box that begins past the last key is skipped, so the stage expects only the bytes of other boxes. The
//| last box may reach past the sequence's end. It loads whatever the cache holds there, and as in step 4 no
//| consumer reads it.

/// Fills the stages of keys, or those of values. One warp.
template <bool kValues, typename Traits, typename PlanType>
__device__ __forceinline__ void produce_boxes(RingShared<Traits>& shared, const CUtensorMap& map,
                                              const Cache& cache, const Problem& problem,
                                              const PlanType& plan,
                                              Segments<Traits::kKeys, PlanType>& segments) {
  const int lane = threadIdx.x % 32, box_keys = cache.copy_rows;
  const int row_bytes = plan.template columns<Traits::kHeadDim>() * Traits::kElementBytes;
  PipelineState<Traits::kStages> state;
  bool keys_are_next = true;  // the warp of values had the previous stage
  Segment segment;
  while (segments.next(segment)) {
    const Pack of = problem.pack_of(segment.pack);
    const int start = plan.first_key_of(problem, of.batch, segment.length);
    PagesAhead pages(cache, of.batch, segment, start, Traits::kKeys);
    for (int tile = segment.begin; tile < segment.end; ++tile) {
      const int page = pages.of(tile, lane % cache.copies);
      const int first_key = start + tile * Traits::kKeys;
      const int keys = min(Traits::kKeys, (segment.length - first_key + box_keys - 1) & -box_keys);
      if (kValues) state.advance();  // skips the tile's keys
      wait_empty(shared.ring, state);
      uint64_t* full = &shared.ring.full[state.stage];
      if (lane == 0) mbarrier_arrive_expect_tx(full, keys * row_bytes);
      __syncwarp();  // announce the bytes before any can land
      //| Pages of a few keys make more boxes per tile than the warp has lanes, and each lane issues several.
      for (int in_tile = lane * box_keys; in_tile < keys; in_tile += 32 * box_keys) {
        const int key = first_key + in_tile;
        int in_page = cache.table == nullptr ? key : key & ((1 << cache.page_bits) - 1);
        if constexpr (PlanType::kWindow) in_page += plan.rows_before(of.batch);
        tma_load(shared.ring.tile[state.stage].byte + in_tile * row_bytes, map, full,
                 {0, in_page, of.kv_head, in_tile == lane * box_keys ? page : pages.page_of(key)},
                 cache.keep);
      }
      __syncwarp();
      state.advance();
      if (!kValues) state.advance();
      keys_are_next = true;
    }
    //| Then the consumers merge in stages that the two producers hand out alternately, also from one empty
    //| sequence to the next. No warp may skip as many stages as the ring has: it would wait for a phase of
    //| `empty` while that barrier is still two phases behind, and mistake the previous phase for it.
    for (int i = 0; i < Traits::kMergeStages; ++i, keys_are_next = !keys_are_next) {
      if (keys_are_next != kValues) {
        wait_empty(shared.ring, state);
        __syncwarp();  // all lanes have seen the stage empty
        if (lane == 0) mbarrier_arrive(&shared.ring.full[state.stage]);
      }
      state.advance();
    }
  }
}

//| ## The kernel
//|
//| It differs from the kernel of step 4 in the maps and in the producers that read them. Boxes must land at
//| multiples of 128 bytes. If a few short rows do not, one producer works as in step 4, the other is idle.

/// Warps that produce.
constexpr int kBoxProducers = 2;

/// Computes attention for all tiles of rows. Grid: as many blocks as the plan has; shared memory:
/// RingShared. `PlanType` is Plan, or Rules.
template <typename T, typename Traits, typename PlanType>
__global__ void __launch_bounds__(Traits::kConsumers + kBoxProducers * 32, Traits::kBlocks)
    ring_of_boxes(const __grid_constant__ KeyMaps maps,
                  const T* q,  // [batch, heads, seqlen_q, kHeadDim], strided
                  T* o,        // [batch, heads, seqlen_q, kHeadDim], strided
                  float* lse,  // [batch, heads, seqlen_q]
                  CacheOf<Traits> cache, Workspace workspace, Problem problem, PlanType plan) {
  using Shared = RingShared<Traits>;
  static_assert(sizeof(Shared) <= kMaxSharedBytes, "more shared memory than a block may have");
  Shared& shared = *dynamic_shared<Shared>();
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == Traits::kConsumers && maps.in_boxes) {
    tma_prefetch(maps.k);
    tma_prefetch(maps.v);
  }
  if (threadIdx.x == 0) {
    initialise(shared.ring, 1, Traits::kWarps, "full", "empty");
    fence_mbarrier_init();  // TMA sees the barriers,
  }
  //| The barriers are those of step 4: `full` gets one arrival, from the producer whose stage it is.
  Segments<Traits::kKeys, PlanType> segments(plan, problem, gridDim.x);
  segments.begin(blockIdx.x);  // meanwhile, all other warps
  __syncthreads();             // all threads see the barriers
  if (warp < Traits::kWarps) {
    consume<T, Traits>(shared, cache, problem, plan, segments, workspace, q, o, lse);
  } else if (!maps.in_boxes) {
    if (warp == Traits::kWarps) produce<Traits>(shared, cache, problem, plan, segments);
  } else if (warp == Traits::kWarps) {
    produce_boxes<false>(shared, maps.k, cache, problem, plan, segments);
  } else {
    produce_boxes<true>(shared, maps.v, cache, problem, plan, segments);
  }
}

}  // namespace flashbook::decoding
