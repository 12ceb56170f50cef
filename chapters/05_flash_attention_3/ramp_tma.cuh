//| # A tile in and out
//|
//| TMA fetches a tile, the threads double it, TMA takes it away. Each handover has its own wait, because
//| TMA is no thread and reaches memory on a path of its own:
//|
//| * **In.** Thread 0 announces the tile's bytes at an mbarrier and asks for the tile. All threads wait
//|   there.
//| * **Out.** Each thread calls `fence_proxy_async`, so that TMA sees what it wrote, and the barrier makes
//|   sure that all have. Thread 0 asks for the store, closes the group, and waits until the tile has been
//|   read: shared memory vanishes with the block.
//|
//| The tensor need not be a whole number of tiles. TMA fills the last one with zeros, which count as bytes,
//| and stores none of them.
//|
//| **Break it.** Leave out the `fence_proxy_async`. A GPU may still get it right, by luck.
#pragma once
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"

namespace flashbook::fa3 {

constexpr int kRampRows = 32, kRampColumns = 32;  ///< of a tile, the box of both maps

/// to = 2 * from, two matrices of floats with kRampColumns columns. One block of 128 threads per tile.
__global__ void double_tiles(const __grid_constant__ CUtensorMap from,
                             const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(128) float tile[kRampRows * kRampColumns];
  __shared__ uint64_t landed;
  const int first_row = int(blockIdx.x) * kRampRows;
  if (threadIdx.x == 0) {
    mbarrier_init(&landed, 1);  // thread 0 arrives once; bytes are counted apart
    fence_mbarrier_init();      // TMA may use it
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
