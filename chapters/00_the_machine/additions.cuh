//| # Additions in the L2
//|
//| Several blocks add to the same sum in device memory. The L2 cache performs the additions: a multiprocessor
//| sends values and addresses, and does not wait for anything. [Chapter
//| 7](../07_backward/README.md#two-sums-along-rows-and-down-columns) sums a gradient in this way, and these
//| kernels measure the rate. There are three ways: one float per thread, four floats per thread, and a tile
//| that TMA reads from shared memory.
//|
//| ![The levels of memory and the clocks that each takes](../../docs/figures/memory_levels.svg)
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/fence.h"

namespace flashbook::machine {

//| ## The tiles
//|
//| A block adds ones to tiles of 32 KB, as much as a block of chapter 7 adds per round at a head dimension
//| of 128. Block 0 starts with tile 0, block 1 with tile 1, and so on, so that no two blocks add to the same
//| place at the same time. If there is only one tile, all blocks add to it.

constexpr int kAddThreads = 256;
constexpr int kAddedFloats = 8192;  ///< floats per tile, which a block adds per round: 32 KB

/// How to add in the L2: one float per thread, four floats per thread, or a tile by one thread with TMA.
enum class Adds { floats, fours, tiles };

//| ## Three ways
//|
//| Neighbouring lanes add to neighbouring addresses, so a warp's `red` covers 128 bytes, or 512. TMA reads a
//| tile that threads have written to shared memory, so a fence comes first. Two TMA additions may be in
//| flight: `wait_read<1>` returns when at most one tile remains to be read. The last wait, without `read`,
//| returns when all sums are in memory.

/// Adds 1 to every float of a tile, of one tile after another, `rounds` times.
template <Adds kHow>
__global__ void __launch_bounds__(kAddThreads) add_ones(float* sums,  // [tiles, kAddedFloats]
                                                        int tiles, int rounds) {
  float* ones = dynamic_shared<float>();  // [kAddedFloats], for TMA
  if (kHow == Adds::tiles)
    for (int i = int(threadIdx.x); i < kAddedFloats; i += kAddThreads) ones[i] = 1;
  fence_proxy_async();  // TMA sees what this thread wrote,
  __syncthreads();      // and what all other threads wrote
  //| A round is one tile. The next round starts without waiting for the sums: a `red` has no result, and with
  //| TMA, the block only waits until the tile has been read.
  for (int round = 0; round < rounds; ++round) {
    //| Each block iterates over all tiles, starting with its own, so at any time, the blocks add to different
    //| tiles.
    float* const tile = sums + int64_t((int(blockIdx.x) + round) % tiles) * kAddedFloats;
    if constexpr (kHow == Adds::floats) {
#pragma unroll
      for (int i = 0; i < kAddedFloats; i += kAddThreads) red_add(tile + i + threadIdx.x, 1.0f);
    } else if constexpr (kHow == Adds::fours) {
#pragma unroll
      for (int i = 0; i < kAddedFloats / 4; i += kAddThreads)
        red_add(reinterpret_cast<float4*>(tile) + i + threadIdx.x, make_float4(1, 1, 1, 1));
    } else if (threadIdx.x == 0) {
      bulk_reduce_add(tile, ones, kAddedFloats * sizeof(float));
      tma_store_commit();
      tma_store_wait_read<1>();
    }
  }
  if (kHow == Adds::tiles && threadIdx.x == 0) tma_store_wait<0>();  // the sums are in memory
}

}  // namespace flashbook::machine
