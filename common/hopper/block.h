//| # The frame of a block
//|
//| The persistent kernels of chapters 5, 6 and 10 differ in their main loops. The code around the loop is the
//| same: a warpgroup of producers and two or three of consumers share the registers, one thread loads each
//| consumer's next queries as soon as that consumer has computed its last scores with the old ones, and one
//| thread stores the outputs. The pipeline and the broadcast of the next tile have their own barriers; the
//| others at which these threads and the consumers meet are:
//|
//| | barrier of a consumer | who arrives | arrivals of a phase | who waits | first wait |
//| | --- | --- | --- | --- | --- |
//| | `q_full` | the thread that loads queries, with their number of bytes; then the bytes | 1 | the consumer | parity 0 |
//| | `q_empty` | lane 0 of each of its warps, when its last scores are computed | 4 | that thread | parity 1 |
//| | `output_full` | lane 0 of each of its warps, when all lanes have written | 4 | the thread that stores | parity 0 |
//| | `output_empty` | the thread that stores, when TMA has read the tile | 1 | the consumer | parity 1 |
//|
//| Each has one phase per tile of queries that the block processes, so its parity changes with every tile.
//|
//| ![Three threads of warpgroup 0 and the consumers, what they share in memory, and its
//| barriers](../../docs/figures/hopper_block_persistent.svg)
#pragma once
#include "common/device/tensor_map_type.h"
#include "common/hopper/problem.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::hopper {

//| ## Registers
//|
//| A multiprocessor has 65536 registers. ptxas gives each of 384 threads 168, each of 512 threads 128, and
//| `setmaxnreg` redistributes them: 40 + 2 * 232 = 3 * 168, and 32 + 3 * 160 = 4 * 128.

/// Registers per thread after setmaxnreg.
template <int kConsumers>
constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;
template <int kConsumers>
constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 232;

//| Descriptors and barriers are the same for all lanes of a warp, and the hardware wants them in *uniform*
//| registers. The compiler keeps them there only while it can prove that they are equal in all lanes, and it
//| knows that a shuffle from lane 0 returns the same value in all lanes.
/// Returns the number of this warp in the block. The shuffle makes the value uniform.
__device__ __forceinline__ int warp_of_block() { return __shfl_sync(kWholeWarp, threadIdx.x / 32, 0); }

//| ## The barriers
//|
//| Each consumer has its own four barriers, so that it does not wait for another consumer's queries or store.
//| A block's shared memory holds them in `barriers`, next to `q` and `output`, which have one tile per
//| consumer.
/// The barriers at which consumers receive their queries and hand over their outputs.
template <int kConsumers>
struct BlockBarriers {
  uint64_t q_full[kConsumers], q_empty[kConsumers];
  uint64_t output_full[kConsumers], output_empty[kConsumers];
};

/// Replaces a tile in versions of a kernel that do not have one.
struct Nothing {};

//| Each count is the number of arrivals: one thread for `q_full` and `output_empty`, four warps for `q_empty`
//| and `output_full`.
/// Initialises the barriers. Call it from one thread, before the block's first __syncthreads.
template <int kConsumers>
__device__ inline void initialise(BlockBarriers<kConsumers>& barriers) {
  for (int i = 0; i < kConsumers; ++i) {
    mbarrier_init(&barriers.q_full[i], 1);
    name_mbarrier(&barriers.q_full[i], "q_full", i);
    mbarrier_init(&barriers.q_empty[i], kWarpsPerWarpgroup);
    name_mbarrier(&barriers.q_empty[i], "q_empty", i);
    mbarrier_init(&barriers.output_full[i], kWarpsPerWarpgroup);
    name_mbarrier(&barriers.output_full[i], "output_full", i);
    mbarrier_init(&barriers.output_empty[i], 1);
    name_mbarrier(&barriers.output_empty[i], "output_empty", i);
  }
}

//| ## Queries
//|
//| Each consumer has one buffer for queries, which is free as soon as the last *scores* of the old queries
//| are computed, even though their product with V, the division and the store are still to come. Chapter 6
//| loads additional data with the queries: it passes the number of bytes and issues the loads itself.
/// Loads each consumer's queries: 64 rows of `head` from `first_row` on, the next 64, ... One thread calls
/// it. `parity` is that of the number of earlier tiles. `more(consumer)` loads `more_bytes` more.
template <typename Shared, typename Map, typename More>
__device__ __forceinline__ void load_queries(Shared& shared, const Map& q_map, uint32_t parity, int first_row,
                                             const Head& head, uint32_t more_bytes, const More& more) {
  constexpr int kConsumers = sizeof(shared.q) / sizeof(shared.q[0]);
  auto& barriers = shared.barriers;
  for (int i = 0; i < kConsumers; ++i) {
    mbarrier_wait(&barriers.q_empty[i], parity ^ 1);  // the consumer has computed its last scores
    mbarrier_arrive_expect_tx(&barriers.q_full[i], sizeof(shared.q[i]) + more_bytes);
    load(shared.q[i], q_map, &barriers.q_full[i], first_row + i * kRowsPerWarpgroup, head);
    more(i);
  }
}

/// Loads each consumer's queries, and nothing else.
template <typename Shared, typename Map>
__device__ __forceinline__ void load_queries(Shared& shared, const Map& q_map, uint32_t parity, int first_row,
                                             const Head& head) {
  load_queries(shared, q_map, parity, first_row, head, 0, [](int) {});
}

/// Arrives for this warp, which has read its consumer's queries.
template <typename Shared>
__device__ __forceinline__ void release_queries(Shared& shared, int consumer) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.barriers.q_empty[consumer]);
}

//| ## Outputs
//|
//| A consumer writes its output into its buffer in shared memory as soon as TMA has read the previous one.
//| Then lane 0 of each warp arrives, and the consumer continues with its next queries while TMA stores.
/// Hands over a consumer's output; `write()` writes this warp's rows. `parity` is the parity of the number of
/// previous tiles.
template <typename Shared, typename Write>
__device__ __forceinline__ void hand_over_output(Shared& shared, int consumer, uint32_t parity,
                                                 const Write& write) {
  mbarrier_wait(&shared.barriers.output_empty[consumer], parity ^ 1);  // TMA has read the last output
  write();
  __syncwarp();  // all lanes have waited and written
  if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.barriers.output_full[consumer]);
}

//| `tma_store_wait_read` returns when TMA has read the tile from shared memory, which is enough to reuse the
//| buffer. Only the end of the kernel guarantees that the bytes are in device memory.
/// Stores each consumer's output: the counterpart of load_queries. One thread calls it.
template <typename Shared, typename Map>
__device__ __forceinline__ void store_outputs(Shared& shared, const Map& output_map, uint32_t parity,
                                              int first_row, const Head& head) {
  constexpr int kConsumers = sizeof(shared.output) / sizeof(shared.output[0]);
  for (int i = 0; i < kConsumers; ++i) {
    mbarrier_wait(&shared.barriers.output_full[i], parity);  // all four warps have written their rows
    store(shared.output[i], output_map, first_row + i * kRowsPerWarpgroup, head);
    tma_store_commit();
    tma_store_wait_read<0>();
    mbarrier_arrive(&shared.barriers.output_empty[i]);  // the consumer may write its next output
  }
}

}  // namespace flashbook::hopper
