//| # The producer decides which tiles
//|
//| Chapter 5's producer knows how many tiles of keys there are, and streams them all. Here it must first find
//| out which ones a tile of queries needs: its *row* of tiles. A separate *warp* decides on that shortly
//| before the previous row ends. Each lane gets the class of one tile of keys from the policy, and ballots
//| turn 32 answers into two words of bits. The warp counts the tiles of either class, broadcasts both counts,
//| and passes the words to the streaming thread.
//|
//| **Partial tiles first.** Consumers receive two counts, of partial and of full tiles. They run one loop
//| with the mask and then one without any code for it, where they need not even know which keys they
//| multiply, unless a function on scores takes the key. Under most masks a row begins with the tile on the
//| diagonal, as in chapter 5.
//|
//| **Two warps.** One warp could decide and then stream. But a decision takes some 1000 clocks, and more with
//| documents, and the loads of every row would begin that much later, while a row of five tiles takes only
//| about 14,000 clocks ([the appendix](appendix.md#where-a-row-spends-its-clocks)).
//|
//| ![Warp 3 decides on a row, thread 0 streams its tiles, two more threads load queries and store outputs;
//| the memory between them and the consumers, and the barriers](../../docs/figures/masks_block.svg)
#pragma once
#include "chapters/09_masks/block.cuh"

namespace flashbook::masks {

//| ## The candidates, 32 at a time

/// The classes of 32 candidates. Bit i: candidate `first` + i has that class.
struct Classes {
  uint32_t partial, full;
};

/// Returns the classes of the candidates from `first` on. All lanes of a warp.
template <int kKeys, typename Tiles>
__device__ __forceinline__ Classes classes_from(const Tiles& tiles, int first) {
  const int candidate = first + int(threadIdx.x % 32);
  const TileClass found =
      candidate < tiles.span.count ? tiles.classify(tiles.span.tile(candidate) * kKeys) : TileClass::skip;
  return {__ballot_sync(kWholeWarp, found == TileClass::partial),
          __ballot_sync(kWholeWarp, found == TileClass::full)};
}

//| ## The deciding warp
//|
//| All lanes hold the work, since all of them classify. Only lane 0 waits, writes and increments the
//| counter. It writes the work at once, and the two counts when they are known, so that the producer's few
//| registers need not keep the work.
//|
//| Under a window of 1024 a tile of queries has 9 candidates, so one round of ballots is enough. A causal
//| tile of a long sequence has more than 32. Then the warp classifies them twice more, to pass on the partial
//| ones and then the full ones.
/// Runs the warp that decides on the next tile of queries, and on its tiles of keys.
template <typename Traits, typename Shared, typename Policy>
__device__ void decide(Shared& shared, const Problem& problem, const Policy& policy, int* counter) {
  constexpr int kKeys = Traits::kKeys;
  const bool leads = threadIdx.x % 32 == 0;
  PipelineState<kWorkStages> next;
  PipelineState<kBallotStages> ballot;
  int index = blockIdx.x;
  for (;; next.advance()) {
    Work work = policy.template work<Traits::kRows>(problem, index);
    if constexpr (Policy::kExtras.documents)
      if (work.first_query >= 0) work.document = policy.document_of_all(work, Traits::kRows);
    Work& told = shared.work.tile[next.stage];
    if (leads) {
      wait_empty(shared.work, next);  // all have read what was here before
      told = work;
      if (work.first_query < 0) mbarrier_arrive(&shared.work.full[next.stage]);
    }
    if (work.first_query < 0) return;
    //| Consumers need the two counts before they begin, so counting comes first. The tile of queries may
    //| reach past the end of the sequence; the policy is called with existing queries only.
    const auto tiles = policy.template tiles<kKeys>(
        work, min(work.first_query + queries_among(policy, Traits::kRows), work.sequence.queries) - 1);
    Classes classes{};
    int partial = 0, full = 0;
#pragma unroll 1  // the producer has few registers
    for (int first = 0; first < tiles.span.count; first += 32) {
      classes = classes_from<kKeys>(tiles, first);
      partial += __popc(classes.partial);
      full += __popc(classes.full);
    }
    if (leads) {
      told.partial = partial, told.full = full;
      mbarrier_arrive(&shared.work.full[next.stage]);
    }

    //| Within a class tiles go from the last to the first, as in chapter 5: the highest bit of a word is
    //| next.
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass)  // partial tiles, then full ones
#pragma unroll 1
      for (int first = (tiles.span.count - 1) / 32 * 32; first >= 0; first -= 32) {
        if (tiles.span.count > 32) classes = classes_from<kKeys>(tiles, first);
        const uint32_t passed_on = pass == 0 ? classes.partial : classes.full;
        if (passed_on == 0) continue;
        if (leads) publish(shared.ballots, ballot, TileBallot{tiles.span, first, passed_on});
        ballot.advance();
      }

    //| **Not too early.** Once a block has claimed a tile of queries, no idle block can take it. So the warp
    //| claims the next one only when the current one is about to end, early enough for a decision and the
    //| first loads. All lanes wait for that, because if one lane waited alone, the warp would alternate
    //| between it and the others.
    static_assert(kWorkStages % 2 == 0, "the stage tells the parity of the tiles of queries so far");
    mbarrier_wait(&shared.near_end, next.stage % 2);
    if (leads) index = problem.blocks + atomicAdd(counter, 1);
    index = __shfl_sync(kWholeWarp, index, 0);
    //| All blocks together increment the counter once per tile, and the last one resets it for the next
    //| launch (chapter 5).
    if (leads && index == problem.blocks + policy.count(problem) - 1) atomicExch(counter, 0);
  }
}

//| ## Keys and values
//|
//| One thread streams them. With each tile of keys it writes the number of the first key, which consumers
//| read before they mask. The word shares the stage's barriers: it is written before the arrival at `full`,
//| and read before the arrival at `empty`.
//|
//| This thread also tracks the row's progress. When two tiles are left to send, it arrives at `near_end` to
//| request the next row. If a row has fewer tiles, it does so at once.

constexpr int kTilesBefore = 2;  ///< the next row is requested this many tiles before a row's end

/// Runs the thread that streams keys and values.
template <typename Traits, typename Shared>
__device__ void produce_keys(Shared& shared, const TileMap& k_map, const TileMap& v_map,
                             const Problem& problem) {
  PipelineState<kWorkStages> next;
  PipelineState<kBallotStages> ballots;
  PipelineState<Traits::kStages> state, of_second_ring;
  auto& value_state = Traits::kTwoRings ? of_second_ring : state;
  for (;;) {
    const Work work = next_of(shared.work, next);
    if (work.first_query < 0) return;
    int left = work.partial + work.full;
    if (left < kTilesBefore) mbarrier_arrive(&shared.near_end);

    //| As in chapter 5, keys run one tile ahead of values. So a tile's values are sent once the next tile is
    //| known, or once there is none.
    const int kv_head = work.head.head / problem.group;
    const Head k_rows = work.k_rows.of(kv_head, problem.k_map_strides);
    const Head v_rows = work.k_rows.of(kv_head, problem.v_map_strides);
    int before = -1;  // first key of the tile whose values have not been sent yet
    while (left > 0) {
      const TileBallot ballot = next_of(shared.ballots, ballots);
      for (uint32_t tiles = ballot.tiles; tiles != 0; --left) {
        const int bit = 31 - __clz(int(tiles));
        tiles ^= 1u << bit;
        const int first_key = ballot.span.tile(ballot.first + bit) * Traits::kKeys;
        wait_empty(shared.pipeline, state);
        if (left == kTilesBefore) mbarrier_arrive(&shared.near_end);
        shared.first_key[state.stage] = first_key;
        fill(shared.pipeline, state, k_map, work.k_rows.row + first_key, k_rows);
        if (before >= 0) fill(shared.values(), value_state, v_map, work.k_rows.row + before, v_rows);
        before = first_key;
      }
    }
    if (before >= 0) fill(shared.values(), value_state, v_map, work.k_rows.row + before, v_rows);
  }
}

//| If keys are in pages (step 8), the policy does this and the next role itself, with two whole warps, which
//| both read the ballots.

//| ## Queries and outputs
//|
//| As in chapter 5, each has one thread. A tile's rows past the end of its sequence are loaded as zeros and
//| not stored.
//|
//| With two places, the queries of tile n replace those of n - 2, whose output consumers hand over when they
//| begin n - 1. So the queries of n are loaded as soon as n is decided on, while n - 1 is multiplied.
/// Starts loading a tile's queries to their place: for each consumer `rows` of `head`, from `first_row` on.
/// One thread.
template <typename Traits, typename Shared>
__device__ __forceinline__ void load_queries(Shared& shared, const TileMap& q_map,
                                             const PipelineState<Traits::kQueryPlaces>& place, int first_row,
                                             const Head& head, int rows = kRowsPerWarpgroup) {
  for (int i = 0; i < Traits::kConsumers; ++i) {
    auto& queries = shared.q[place.stage][i];
    uint64_t* const full = &shared.barriers.q_full[place.stage][i];
    mbarrier_wait(&shared.barriers.q_empty[place.stage][i], place.phase ^ 1);  // the place is free
    mbarrier_arrive_expect_tx(full, sizeof(queries));
    load(queries, q_map, full, first_row + i * rows, head);
  }
}

//| **The first queries do not wait for the decision.** It is made 4000 clocks after a block's first
//| instruction, since neither code nor bounds are in any cache. The first rows are known after 1800, so the
//| warp that loads queries works them out for itself. Documents of 1024 gain 1.0 to 1.3 % ([the
//| appendix](appendix.md#why-documents-were-slower-than-chapter-5)).
/// Runs the warp that loads queries, in its first thread.
template <typename Traits, typename Shared, typename Policy>
__device__ void produce_queries(Shared& shared, const TileMap& q_map, const Problem& problem,
                                const Policy& policy) {
  PipelineState<kWorkStages> next;
  PipelineState<Traits::kQueryPlaces> place;
  Work work = policy.template work<Traits::kRows>(problem, blockIdx.x);  // called by a whole warp
  if (threadIdx.x % 32 != 0) return;
  for (bool first = true; work.first_query >= 0; first = false) {
    load_queries<Traits>(shared, q_map, place, work.q_rows.row + work.first_query,
                         work.q_rows.of(work.head.head, problem.q_map_strides));
    place.advance();
    if (first) next_of(shared.work, next);  // the decision on the first tile
    work = next_of(shared.work, next);
  }
}

//| The output is stored to the same rows. TMA skips rows past the end of the map's tensor, which is the end
//| of the rows of the batch entry, or of the packed sequence. `tma_store_wait_read` returns when TMA has read
//| the tile from shared memory, so that other queries may take its place. Only the end of the kernel
//| guarantees that the bytes are in device memory.
/// Runs the thread that stores outputs.
template <typename Traits, typename Shared, typename Policy>
__device__ void store_outputs(Shared& shared, const TileMap& output_map, const MapStrides& strides,
                              const Policy& policy) {
  const int rows = queries_among(policy, kRowsPerWarpgroup);
  PipelineState<kWorkStages> next;
  for (PipelineState<Traits::kQueryPlaces> place;; place.advance()) {
    const Work work = next_of(shared.work, next);
    if (work.first_query < 0) return;
    const Head head = work.q_rows.of(work.head.head, strides);
    for (int i = 0; i < Traits::kConsumers; ++i) {
      mbarrier_wait(&shared.barriers.output_full[place.stage][i], place.phase);  // four warps have written
      store(shared.q[place.stage][i], output_map, work.q_rows.row + work.first_query + i * rows, head);
      tma_store_commit();
      tma_store_wait_read<0>();  // the next queries may be loaded
      mbarrier_arrive(&shared.barriers.q_empty[place.stage][i]);
    }
  }
}

}  // namespace flashbook::masks
