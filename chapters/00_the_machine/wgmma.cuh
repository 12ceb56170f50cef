//| # Products of a warpgroup
//|
//| Hopper's tensor cores are fed from shared memory. Four warps, a **warpgroup**, start a product of a 64x16 by a 16x256 matrix with one
//| instruction, `wgmma`, and the product goes on in the background while the warps do something else. Here they do nothing
//| else: they start 16 products, wait, and start again. A second warpgroup starts its own meanwhile, so the tensor cores are never
//| without work. Chapter 5 explains descriptors, fences and groups; nothing before it needs them.
//|
//| ![A multiprocessor: four quarters with a tensor core each](../../docs/figures/multiprocessor.svg)
#pragma once
#include "common/ptx/clock.h"
#include "common/ptx/fence.h"
#include "common/ptx/wgmma.h"

namespace flashbook::machine {

constexpr int kColumns = 256, kDepth = 64;  ///< of the tiles: 64 x 64 and 64 x 256, both with 128-byte rows
constexpr int kProductsOfGroup = 16;
constexpr int kWgmmaFlops = 2 * 64 * kColumns * 16;

/// Two tiles of ones, so that it does not matter where an element lies.
struct alignas(1024) OnesShared {
  __half a[64][kDepth], b[kColumns][kDepth];
};

/// Of each of the block's two warpgroups, `rounds` groups of kProductsOfGroup products.
__global__ void __launch_bounds__(256) warpgroup_products(int rounds, float* sums, int64_t* clocks) {
  OnesShared& shared = *dynamic_shared<OnesShared>();
  uint32_t* pairs = dynamic_shared<uint32_t>();
  for (int i = int(threadIdx.x); i < int(sizeof(OnesShared) / 4); i += int(blockDim.x))
    pairs[i] = 0x3c003c00;  // 1, 1
  fence_proxy_async();      // the tensor cores see what threads wrote,
  __syncthreads();          // all of it
  const uint64_t a = wgmma_descriptor<Swizzle::b128>(shared.a, 16, 1024);  // 8 rows of 128 bytes
  const uint64_t b = wgmma_descriptor<Swizzle::b128>(shared.b, 16, 1024);
  float product[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) product[i] = 0;
  wgmma_pin(product);

  const int64_t begin = clock_cycles();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kProductsOfGroup; ++i) {
      const int column_bytes = i % (kDepth / 16) * 32;
      wgmma<__half, kColumns>(product, wgmma_advance(a, column_bytes), wgmma_advance(b, column_bytes), true);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(product);
  }
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock_cycles() - begin;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sum += product[i];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace flashbook::machine
