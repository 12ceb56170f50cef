//| # Products of a warpgroup
//|
//| Hopper's tensor cores read their operands from shared memory. Four warps, a **warpgroup**, start the
//| product of a 64x16 and a 16x256 matrix with a single instruction, `wgmma`, which runs in the background
//| while the warps do something else. Here, they do nothing else: they start 16 products, wait, and start
//| again. A second warpgroup does the same, so the tensor cores always have work. The [chapter's
//| program](README.md#arithmetic-and-tensor-cores) measures their rate this way.
//|
//| ![A multiprocessor: four quarters with a tensor core each](../../docs/figures/multiprocessor.svg)
#pragma once
#include "common/ptx/clock.h"
#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"

namespace flashbook::machine {

//| ## Two tiles of ones
//|
//| 64 columns of 16 bits are 128 bytes, the widest row that a swizzle supports. In tiles of ones, the
//| position of an element does not matter, so the threads fill the tiles from end to end, and each
//| instruction adds 16 to every element of the product.

constexpr int kOnesDepth = 64, kOnesColumns = 256;  ///< the tiles are 64 x 64 and 64 x 256
constexpr int kProductsPerGroup = 16;
constexpr int kWgmmaFlops = 2 * 64 * kOnesColumns * 16;

/// The tiles that the tensor cores read.
struct alignas(1024) OnesShared {
  __half a[64][kOnesDepth], b[kOnesColumns][kOnesDepth];
};

//| ## The loop
//|
//| A **descriptor** holds a tile's address and layout in 64 bits, and is the instruction's operand in place
//| of the tile. The fence makes the threads' writes visible to the tensor cores. `wgmma_commit` closes a
//| group of products, and `wgmma_wait<0>` waits for all groups. In between, no thread may touch `product`:
//| the tensor cores are writing to its 128 registers per thread.

/// Each of the block's two warpgroups does `rounds` groups of kProductsPerGroup products.
__global__ void __launch_bounds__(256) warpgroup_products(int rounds, float* sums, int64_t* clocks) {
  OnesShared& shared = *dynamic_shared<OnesShared>();
  uint32_t* pairs = dynamic_shared<uint32_t>();
  for (int i = int(threadIdx.x); i < int(sizeof(OnesShared) / 4); i += int(blockDim.x))
    pairs[i] = 0x3c003c00;  // 1, 1
  fence_proxy_async();      // the tensor cores see what threads wrote,
  __syncthreads();          // all of it
  const uint64_t a = wgmma_descriptor<Swizzle::b128>(shared.a, 16, 1024);  // 8 rows of 128 bytes
  const uint64_t b = wgmma_descriptor<Swizzle::b128>(shared.b, 16, 1024);
  float product[kOnesColumns / 2];
#pragma unroll
  for (int i = 0; i < kOnesColumns / 2; ++i) product[i] = 0;
  wgmma_pin(product);

  //| Four products cover the 64 columns of both tiles, 16 columns each, and then start over. A group of 16
  //| keeps the tensor cores busy for some two thousand clocks, so the wait at its end costs little. And while
  //| one warpgroup waits, the other has a group in flight.

  const int64_t begin = clock_cycles();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kProductsPerGroup; ++i) {
      const int column_bytes = i % (kOnesDepth / 16) * 32;
      wgmma<__half, kOnesColumns>(product, wgmma_advance(a, column_bytes), wgmma_advance(b, column_bytes),
                                  true);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(product);
  }
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock_cycles() - begin;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kOnesColumns / 2; ++i) sum += product[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace flashbook::machine
