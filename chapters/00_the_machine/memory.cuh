//| # Memory: latency and bandwidth
//|
//| **Latency** is how long a warp waits for a value that it loads, in clocks. **Bandwidth** is how many bytes
//| arrive per second when thousands of warps load at the same time. Each kernel here measures one of the two,
//| for one memory.
//|
//| ![The registers of a thread and the four memories behind them](../../docs/figures/memory_levels.svg)
#pragma once
#include "common/device/kernel.h"
#include "common/ptx/clock.h"

namespace flashbook::machine {

//| ## Latency: a chain of addresses
//|
//| A GPU is good at hiding latency, so the kernel must leave it no other work to do. Each node of a chain
//| holds the address of the next one, so a warp cannot load node 7 before it has node 6. The latency is the
//| time of a walk divided by the number of hops.
//|
//| The size of the chain selects the memory. A chain of 256 nodes takes 32 KB and stays in a multiprocessor's
//| L1 cache. 65,536 nodes take 8 MB: too large for the L1, but small for the L2. Two million take 256 MB,
//| more than the L2 holds. The host links the nodes in random order, so that nothing can guess the next one.

/// A node fills a cache line, so that every hop reads its own line.
struct alignas(128) Node {
  const Node* next;
};

//| A generic pointer may also point to shared memory, and a load that has to check for this takes longer.
//| `__ldg` promises that the address is in device memory, and that nothing writes to it meanwhile. It has no
//| overload for pointers, so the address is passed as an integer.

__device__ __forceinline__ const Node* next_of(const Node* node) {
  return reinterpret_cast<const Node*>(__ldg(reinterpret_cast<const unsigned long long*>(&node->next)));
}

//| The lanes of a warp walk together: all 32 load from the same address, and one sector serves them all.
//| `warm` untimed hops come first, to bring the chain into the cache. `__syncthreads` keeps the timed
//| loads between the two readings of the clock. With more than one warp per block, the warps hide each
//| other's latency.

/// Walks `warm` untimed hops, then `hops` timed ones, per warp.
__global__ void walk_chain(const Node* const* starts,  // [warps of the grid]
                           int warm, int hops,
                           const Node** ends,  // [warps of the grid]: where each walk ended
                           int64_t* clocks) {  // [blocks]: of the timed hops
  const int warp = int((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  const Node* node = starts[warp];
  for (int i = 0; i < warm; ++i) node = next_of(node);
  __syncthreads();  // all warps begin together
  const int64_t begin = clock_cycles();
  for (int i = 0; i < hops; ++i) node = next_of(node);
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) clocks[blockIdx.x] = clock_cycles() - begin;
  if (threadIdx.x % 32 == 0) ends[warp] = node;
}

//| Shared memory has its own short addresses, relative to the start of the block's share. Each link here is
//| the byte offset of the next one, so that a hop is one instruction without any arithmetic.

constexpr int kSharedLinks = 1024;

/// The same walk through shared memory, by one warp.
__global__ void walk_shared_chain(const uint32_t* links,  // [kSharedLinks]: each link's successor, in bytes
                                  int hops, uint32_t* end, int64_t* clocks) {
  __shared__ uint32_t chain[kSharedLinks];
  for (int i = int(threadIdx.x); i < kSharedLinks; i += int(blockDim.x)) chain[i] = links[i];
  __syncthreads();  // the chain is complete
  const char* base = reinterpret_cast<const char*>(chain);
  uint32_t offset = 0;
  const int64_t begin = clock_cycles();
  for (int i = 0; i < hops; ++i) offset = *reinterpret_cast<const uint32_t*>(base + offset);
  __syncthreads();  // the last load has returned
  if (threadIdx.x == 0) {
    *clocks = clock_cycles() - begin;
    *end = offset;
  }
}

//| ## Bandwidth: as many bytes as possible
//|
//| To measure bandwidth, loads must not wait for each other. Each thread moves 16 bytes, a `float4`, with one
//| instruction, and then advances by the number of threads in the grid. Neighbouring lanes access
//| neighbouring addresses, so a warp moves 512 contiguous bytes.
//|
//| `__restrict__` promises that no other pointer refers to the same memory. Storing to `to` then cannot
//| change `from`, so the compiler may issue all four loads of an unrolled iteration before the first store.

/// to = from. Any grid.
__global__ void copy(float4* __restrict__ to, const float4* __restrict__ from, int64_t count) {  // [count]
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) to[i] = from[i];
}

//| To measure the L2, a block must load bytes that its L1 no longer holds. So in each round it reads another
//| block's chunk, 37 blocks further on. By the time a chunk's turn comes again, the L1 has long evicted it.
//| Scattered reads have as many lines, at random places: eight threads read the 128 bytes of a line.

constexpr int kChunk = 4;  ///< `float4`s that a thread reads per round

/// Sums all of `data` in each of `rounds` rounds, or as many lines at random places.
template <bool kScattered>
__global__ void read_again(const float4* data,         // [blocks, kChunk, threads of a block]
                           int rounds, float* sums) {  // [threads of the grid]
  float sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const unsigned chunk = (blockIdx.x + 37 * unsigned(round)) % gridDim.x;
    const float4* mine = data + int64_t(chunk) * kChunk * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const unsigned line = ((chunk * kChunk + i) * blockDim.x + threadIdx.x) / 8 * 2654435761u >> 7;
      const float4 value = kScattered
                               ? data[line % (gridDim.x * kChunk * blockDim.x / 8) * 8 + threadIdx.x % 8]
                               : mine[i * blockDim.x];
      sum += value.x + value.y + value.z + value.w;
    }
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

//| ## Sectors and coalescing
//|
//| Memory moves **sectors** of 32 bytes. Lanes that read 32 neighbouring floats touch 4 sectors. Lanes that
//| read every eighth float touch 32 sectors, and use only 4 bytes of each. The simulator counts the sectors.
//| On a GPU, they show in the time.

/// Sums `count` floats of `in` that are `stride` floats apart.
__global__ void load_strided(const float* in, int stride, int64_t count,
                             float* sums) {  // [threads of the grid]
  const int64_t threads = int64_t(gridDim.x) * blockDim.x,
                first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll 4
  for (int64_t i = first; i < count; i += threads) sum += in[i * stride];
  sums[first] = sum;
}

/// to[i] = value.
__global__ void fill(float* to, float value, int64_t count) {
  const int64_t threads = int64_t(gridDim.x) * blockDim.x;
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < count; i += threads) to[i] = value;
}

//| ## Banks of shared memory
//|
//| Shared memory has 32 **banks**. The 4-byte word i is in bank i % 32, and a bank serves one address per
//| clock. With a stride of 1, the lanes use 32 different banks. With a stride of 32, they all use bank 0 and
//| are served in turn: a 32-way **bank conflict**. Each turn is a **wavefront**.
//|
//| `volatile` forces a load in every round. Otherwise the compiler would see that nothing changes, and load
//| only once.

constexpr int kBankLoads = 32;  ///< per thread and round

/// Every thread loads kBankLoads * rounds words, with lanes `stride` words apart, stride <= 32.
__global__ void load_banked(int stride, int rounds, float* sums,
                            int64_t* clocks) {  // [threads], [1]; one block
  __shared__ float tile[32 * 32 + kBankLoads];
  for (int i = int(threadIdx.x); i < 32 * 32 + kBankLoads; i += int(blockDim.x)) tile[i] = 1;
  __syncthreads();  // the tile is complete
  const volatile float* mine = tile + int(threadIdx.x) % 32 * stride;
  float sum = 0;
  const int64_t begin = clock_cycles();
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kBankLoads; ++i) sum += mine[i];
  }
  __syncthreads();  // the block is done when its last warp is
  if (threadIdx.x == 0) *clocks = clock_cycles() - begin;
  sums[threadIdx.x] = sum;
}

}  // namespace flashbook::machine
