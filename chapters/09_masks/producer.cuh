//| # The producer decides which tiles
//|
//| Chapter 5's producer knows how many tiles of keys there are, and streams them all. Here it first finds out which ones.
//| A *warp* does it: each lane asks the policy for the class of one tile of keys, and a ballot turns 32 answers into one word
//| of bits. It goes over the candidates four times: to count partial tiles, to count full ones, to stream the full, to
//| stream the partial. So no list is written down anywhere, and a sequence may have any length.
//|
//| **Full tiles first.** Consumers are told two numbers, how many tiles are partial and how many are full. They run one
//| loop without any code for the mask and then one with it. In the first loop they need not even know which keys they
//| multiply, unless a function on scores asks. There is another reason: the softmax of the very first tile has no product beside it,
//| so a mask there would cost its whole time. Beside a product it costs a part of that.
//|
//| ![Three threads of warpgroup 0 and the consumers, what lies between them in shared memory, and its barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include "chapters/09_masks/block.cuh"

namespace flashbook::masks {

//| ## The candidates, 32 at a time

/// Bit i: the tile of candidate `first` + i has the class `wanted`. All lanes of a warp.
template <int kKeys, typename Tiles>
__device__ __forceinline__ uint32_t candidates_of_class(const Tiles& tiles, int first, TileClass wanted) {
  const int candidate = first + int(threadIdx.x % 32);
  const bool is_one =
      candidate < tiles.span.count && tiles.classify(tiles.span.tile(candidate) * kKeys) == wanted;
  return __ballot_sync(kWholeWarp, is_one);
}

//| To count is to add up the bits. A window of 1024 has 9 candidates, so there is one round; a causal tile of a long sequence
//| has a round for every 32 tiles of keys.
/// How many tiles of the class there are. All lanes of a warp.
template <int kKeys, typename Tiles>
__device__ __forceinline__ int count_tiles(const Tiles& tiles, TileClass wanted) {
  int count = 0;
  for (int first = 0; first < tiles.span.count; first += 32)
    count += __popc(candidates_of_class<kKeys>(tiles, first, wanted));
  return count;
}

//| Tiles go from the last to the first, as in chapter 5. The highest bit of the word is the next one.
/// Calls `use(first_key)` for each tile of the class. All lanes of a warp.
template <int kKeys, typename Tiles, typename Use>
__device__ __forceinline__ void for_each_tile(const Tiles& tiles, TileClass wanted, const Use& use) {
#pragma unroll 1  // the producer has few registers
  for (int first = (tiles.span.count - 1) / 32 * 32; first >= 0; first -= 32) {
    uint32_t left = candidates_of_class<kKeys>(tiles, first, wanted);
#pragma unroll 1
    while (left != 0) {
      const int bit = 31 - __clz(int(left));
      left ^= 1u << bit;
      use(tiles.span.tile(first + bit) * kKeys);
    }
  }
}

//| ## Keys and values
//|
//| Lane 0 waits for a stage and asks TMA; the other lanes wait for it at the next ballot. With each tile of keys goes a word,
//| the number of its first key, which consumers read before they mask. It lies beside the stage and shares its barriers: written
//| before the producer arrives at `full`, read before a consumer arrives at `empty`.
/// The warp that decides on the next tile of queries, broadcasts it and streams its keys and values.
template <typename Sizes, typename Shared, typename Policy>
__device__ void produce_keys(Shared& shared, const CUtensorMap& k_map, const CUtensorMap& v_map,
                             const Problem& problem, const Policy& policy, int* counter) {
  constexpr int kKeys = Sizes::kKeys;
  //| The whole warp knows the work, since all of it classifies. Only lane 0 waits, writes and asks. `publish` is the same as in
  //| chapter 5: wait until all have read what stood there, write, arrive.
  const bool leads = threadIdx.x % 32 == 0;
  hopper::PipelineState<kWorkStages> next;
  hopper::PipelineState<Sizes::kStages> state;
  const auto publish = [&](const Work& work) {
    if (leads) {
      wait_empty(shared.work, next);  // all have read what stood here before
      shared.work.tile[next.stage] = work;
      mbarrier_arrive(&shared.work.full[next.stage]);
    }
    next.advance();
  };
  int index = blockIdx.x;
  for (;;) {
    Work work = policy.template work<Sizes::kRows>(problem, index);
    if (work.first_query < 0) return publish(work);
    const auto tiles =
        policy.template tiles<kKeys>(work, min(work.first_query + Sizes::kRows, work.sequence.queries) - 1);
    //| Consumers must know the two counts before they begin, so counting comes before streaming. The tile of queries may reach beyond
    //| the end of the sequence; the policy is asked about existing queries only.
    work.partial = count_tiles<kKeys>(tiles, TileClass::partial);
    work.full = count_tiles<kKeys>(tiles, TileClass::full);
    publish(work);
    // Asked for now, needed when this tile's keys are under way: nobody waits for the answer.
    if (leads) index = gridDim.x + atomicAdd(counter, 1);

    //| The order is chapter 5's: keys run one tile ahead of values. So the values of a tile are sent when the next tile is
    //| known, or when there is none.
    const int kv_head = work.head.head / problem.group;
    const Head k_rows = work.k_rows.of(kv_head, problem.k_units);
    const Head v_rows = work.k_rows.of(kv_head, problem.v_units);
    int before = -1;  // the first key of the tile whose values are still to be sent
    const auto send = [&](int first_key) {
      if (leads) {
        wait_empty(shared.pipeline, state);
        shared.first_key[state.stage] = first_key;
        fill(shared.pipeline, state, k_map, work.k_rows.row + first_key, k_rows);
        if (before >= 0) fill(shared.pipeline, state, v_map, work.k_rows.row + before, v_rows);
      }
      before = first_key;
    };
    for_each_tile<kKeys>(tiles, TileClass::full, send);
    for_each_tile<kKeys>(tiles, TileClass::partial, send);
    if (leads && before >= 0) fill(shared.pipeline, state, v_map, work.k_rows.row + before, v_rows);
    index = __shfl_sync(kWholeWarp, index, 0);
  }
}

//| ## Queries and outputs
//|
//| As in chapter 5, each by one thread. The rows of a tile beyond the end of its sequence come as zeros, and are not stored.
/// The thread that brings queries.
template <typename Sizes, typename Shared>
__device__ void produce_queries(Shared& shared, const CUtensorMap& q_map, const MapUnits& units) {
  hopper::PipelineState<kWorkStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {  // of the tiles of queries that this block has had
    const Work work = next_work(shared.work, next);
    if (work.first_query < 0) return;
    for (int i = 0; i < Sizes::kConsumers; ++i) {
      mbarrier_wait(&shared.q_empty[i], parity ^ 1);  // the consumer's last scores are computed
      mbarrier_arrive_expect_tx(&shared.q_full[i], sizeof(shared.q[i]));
      load(shared.q[i], q_map, &shared.q_full[i], work.q_rows.row + work.first_query + i * kRowsOfWarpgroup,
           work.q_rows.of(work.head.head, units));
    }
  }
}

//| The same rows are named when the output leaves. TMA leaves out those beyond the end of what the map calls the tensor: the
//| end of the batch entry's rows, or of the packed sequence's.
/// The thread that has outputs stored.
template <typename Sizes, typename Shared>
__device__ void store_outputs(Shared& shared, const CUtensorMap& output_map, const MapUnits& units) {
  hopper::PipelineState<kWorkStages> next;
  for (uint32_t parity = 0;; parity ^= 1) {
    const Work work = next_work(shared.work, next);
    if (work.first_query < 0) return;
    for (int i = 0; i < Sizes::kConsumers; ++i) {
      mbarrier_wait(&shared.output_full[i], parity);  // all four warps have written their rows
      const Head rows = work.q_rows.of(work.head.head, units);
      tma_store(output_map, &shared.output[i],
                {0, work.q_rows.row + work.first_query + i * kRowsOfWarpgroup, 0, rows.head, rows.batch});
      tma_store_commit();
      tma_store_wait_read<0>();
      mbarrier_arrive(&shared.output_empty[i]);  // the consumer may write its next output
    }
  }
}

}  // namespace flashbook::masks
