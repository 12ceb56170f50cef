//| # A tile in and out
//|
//| TMA loads a tile, the threads double it, and TMA stores it. Each handover needs a separate wait, because
//| TMA is not a thread and accesses memory through its own proxy:
//|
//| * **In.** Thread 0 announces the tile's bytes at an mbarrier and requests the tile. All threads wait at
//|   that mbarrier.
//| * **Out.** Each thread calls `fence_proxy_async`, so that TMA sees what it wrote, and the barrier ensures
//|   that all threads have done so. Thread 0 requests the store, commits the group, and waits until the tile
//|   has been read, because shared memory is gone when the block ends.
//|
//| The tensor need not be a whole number of tiles. TMA fills the rest of the last tile with zeros, which
//| count as bytes, and does not store them.
//|
//| **Break it.** Leave out `fence_proxy_async`. A GPU may still produce the right result, by luck.
#pragma once
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::fa3 {

constexpr int kRampRows = 32, kRampColumns = 32;  ///< a tile, the box of both maps

/// to = 2 * from, two matrices of floats with kRampColumns columns. One block of 128 threads per tile.
__global__ void double_tiles(const __grid_constant__ CUtensorMap from,
                             const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(128) float tile[kRampRows * kRampColumns];
  __shared__ uint64_t landed;
  const int first_row = int(blockIdx.x) * kRampRows;
  if (threadIdx.x == 0) {
    mbarrier_init(&landed, 1);  // thread 0 arrives once; bytes are counted separately
    fence_mbarrier_init();      // TMA may use the barrier
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&landed, sizeof(tile));
    tma_load(tile, from, &landed, {0, first_row});
  }
  mbarrier_wait(&landed, 0);
  for (int i = int(threadIdx.x); i < kRampRows * kRampColumns; i += int(blockDim.x)) tile[i] *= 2;
  fence_proxy_async();  // TMA sees what this thread wrote
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(to, tile, {0, first_row});
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

}  // namespace flashbook::fa3
