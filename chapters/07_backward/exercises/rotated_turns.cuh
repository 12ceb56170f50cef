/// \file
/// Exercise ch07-adder: a thread that adds in turn, from two buffers.
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"

namespace flashbook::backward {

// Here keys are the inner loop: each block has a tile of queries and adds a part to dK of every tile of keys.
// There are as many blocks as tiles of keys, all running at once, and no mask. If all began with tile 0, all
// but one would wait. So block b adds first to tile b, then to tile b + 1, and wraps around to tile 0 after
// the last. In its round r it is the r-th block that adds to its tile, counted from 0: in every round each
// tile has one block, and the order is fixed. (Waits form a circle, hence a cooperative launch.)
//
// Warps 0 to 3 write the parts into shared memory, and one thread of warp 4 adds them through TMA. There are
// two buffers, so that the next part is written while TMA reads this one. Round r uses buffer r % 2.

constexpr int kPartWriters = 128;

struct PartShared {
  alignas(16) float4 part[2][kPartWriters];
  uint64_t full[2];   ///< a part has been written; 4 arrivals, lane 0 of each writing warp
  uint64_t empty[2];  ///< TMA has read it; 1 arrival
};

/// Adds the parts of each head. Grid: (blocks, heads), as many blocks as tiles; kPartWriters + 32 threads.
__global__ void __launch_bounds__(kPartWriters + 32)
    add_parts(const float4* parts,  // [heads, blocks, tiles, kPartWriters]
              float4* sums,         // [heads, tiles, kPartWriters], 0 at the start
              int* semaphores) {    // [heads, tiles], 0 at the start: how many blocks have added
  __shared__ PartShared shared;
  const int block = blockIdx.x, tiles = gridDim.x, head = blockIdx.y;
  parts += (int64_t(head) * tiles + block) * tiles * kPartWriters;
  sums += int64_t(head) * tiles * kPartWriters;
  semaphores += head * tiles;
  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < 2; ++buffer) {
      mbarrier_init(&shared.full[buffer], kPartWriters / 32);
      name_mbarrier(&shared.full[buffer], "full", buffer);
      mbarrier_init(&shared.empty[buffer], 1);
      name_mbarrier(&shared.empty[buffer], "empty", buffer);
    }
  }
  __syncthreads();  // the barriers are ready

  if (threadIdx.x < kPartWriters) {
    for (int round = 0; round < tiles; ++round) {
      const int tile = (block + round) % tiles, buffer = round % 2;
      mbarrier_wait(&shared.empty[buffer], (round / 2 + 1) % 2);  // TMA has read the part before the last
      shared.part[buffer][threadIdx.x] = parts[tile * kPartWriters + threadIdx.x];
      fence_proxy_async();  // this thread's numbers become visible to TMA
      __syncwarp();         // all lanes have written: lane 0 arrives for them
      if (threadIdx.x % 32 == 0) mbarrier_arrive(&shared.full[buffer]);
    }
  } else if (threadIdx.x == kPartWriters) {
    // BEGIN EXERCISE ch07-adder: the warp that adds
    // TODO: in each round, wait until the part is written and it is this block's turn, add it, release
    // the buffer, and pass the turn on.
    static_cast<void>(sums), static_cast<void>(semaphores);
    // END EXERCISE ch07-adder
  }
}

}  // namespace flashbook::backward
