#pragma once
#include "common/device/kernel.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/fence.h"

namespace flashbook::backward {

// Blocks sum rows as step 6 sums dQ: each has its part of every tile's sums, TMA adds the part, and a
// semaphore per tile makes the blocks add in turn, the last block first. Block 0 adds last, and divides.

constexpr int kMeanColumns = 64, kMeanRows = 3;  ///< columns of a tile; rows of a tile that a block has

// BEGIN EXERCISE ch07-turn: a turn passed on too early
/// Means of the columns of each tile. Grid: the blocks whose rows are added up, kMeanColumns threads each.
__global__ void __launch_bounds__(kMeanColumns)
    column_means(const float* rows,  // [tiles, blocks, kMeanRows, kMeanColumns]
                 float* sums,        // [tiles, kMeanColumns], 0 at the start
                 float* means,       // [tiles, kMeanColumns]
                 int* semaphores,    // [tiles], 0 at the start: how many blocks have added
                 int tiles) {
  __shared__ __align__(16) float part[kMeanColumns];
  const int block = blockIdx.x, blocks = gridDim.x, column = threadIdx.x;
  const int turn = blocks - 1 - block;  // the block with the last rows adds first
  for (int tile = 0; tile < tiles; ++tile) {
    const float* const from = rows + (int64_t(tile) * blocks + block) * kMeanRows * kMeanColumns + column;
    float sum = 0;
    for (int i = 0; i < kMeanRows; ++i) sum += from[i * kMeanColumns];
    part[column] = sum;
    fence_proxy_async();  // this thread's number becomes visible to TMA
    __syncthreads();      // the part is complete
    if (column == 0) {
      while (load_acquire(semaphores + tile) != turn) {
      }
      bulk_reduce_add(sums + tile * kMeanColumns, part, sizeof(part));
      tma_store_commit();
      tma_store_wait_read<0>();  // TMA is done
      store_release(semaphores + tile, turn + 1);
    }
    __syncthreads();  // TMA has read the part: the next one may be written
    if (block == 0)   // no block adds after this one
      means[tile * kMeanColumns + column] = sums[tile * kMeanColumns + column] / float(blocks * kMeanRows);
  }
}
// END EXERCISE ch07-turn

}  // namespace flashbook::backward
