/// \file
/// Golden cases of clusters: ranks, distributed shared memory, remote barriers, asynchronous stores and sums,
/// multicast.
#include <string>
#include <vector>

#include "common/device/tensor_map.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/cluster.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "tests/simulator/golden.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 64;

template <typename T, typename... Params, typename... Args>
void cluster_case(const std::string& name, std::size_t count, dim3 cluster, dim3 grid,
                  std::size_t shared_bytes, void (*kernel)(Params...), const Args&... args) {
  Values<T> out(count);
  device::launch_cluster(cluster, kernel, grid, kThreads, shared_bytes, nullptr, args..., out.data());
  golden::report(name, out);
}

__global__ void ranks(int* out) {  // [blocks, 4]
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x > 0) return;
  out[4 * block] = cluster_rank();
  out[4 * block + 1] = cluster_size();
  out[4 * block + 2] = int(block);
  out[4 * block + 3] = int(gridDim.x);
}

/// What every block finds in the memory of every other one.
__global__ void look_around(unsigned* out) {  // [blocks, size, 2 * kThreads]
  auto* numbers = dynamic_shared<unsigned>();
  __shared__ unsigned kept[kThreads];
  const unsigned self = threadIdx.x, size = unsigned(cluster_size());
  numbers[self] = (blockIdx.x * kThreads + self) * 2654435761u;
  kept[self] = ~numbers[self];
  cluster_sync();
  for (unsigned rank = 0; rank < size; ++rank) {
    unsigned* seen = out + (blockIdx.x * size + rank) * 2 * kThreads + self;
    seen[0] = mapa(numbers, int(rank))[self];
    seen[kThreads] = *mapa(kept + self, int(rank));
  }
  cluster_sync();
}

/// Atomic operations of all blocks on words of rank 0, whose sums know no order.
__global__ void count_together(unsigned* out) {  // [blocks, 4]
  __shared__ unsigned words[4];
  if (threadIdx.x < 4) words[threadIdx.x] = 0;
  cluster_sync();
  unsigned* first = mapa(words, 0);
  atomicAdd(first, threadIdx.x * 3 + blockIdx.x);
  atomicMax(first + 1, threadIdx.x ^ (blockIdx.x * 77));
  atomicXor(first + 2, (threadIdx.x + 1) * 2654435761u * (blockIdx.x + 1));
  atomicAdd(reinterpret_cast<float*>(first + 3), 0.25f);
  cluster_sync();
  if (threadIdx.x < 4) out[blockIdx.x * 4 + threadIdx.x] = first[threadIdx.x];
  cluster_sync();
}

/// What a barrier answers between the arrivals and announcements of another block.
__global__ void ask_a_barrier(unsigned* out) {  // [blocks, 8]
  __shared__ uint64_t barrier;
  __shared__ unsigned word, other;
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 2);
    fence_mbarrier_init();
    word = other = 7;
  }
  cluster_sync();
  const int rank = cluster_rank();
  unsigned* mine = out + 8 * blockIdx.x;
  const bool is_first = threadIdx.x == 0;
  if (is_first && rank == 1) mbarrier_arrive_at(&barrier, 0);
  cluster_sync();
  if (is_first) mine[0] = mbarrier_try_wait_cluster(&barrier, 1);
  if (is_first && rank == 1) mbarrier_expect_tx_at(&barrier, 0, 4);
  cluster_sync();
  if (is_first && rank == 0) mbarrier_arrive(&barrier);
  if (is_first && rank == 1) {
    mbarrier_arrive_expect_tx(&barrier, 8);
    mbarrier_arrive(&barrier);
    store_async(&word, 99u, &barrier, 0);
  }
  if (is_first && rank == 0) {
    mbarrier_wait_cluster(&barrier, 0);
    mine[1] = word;
    mine[2] = mbarrier_try_wait_cluster(&barrier, 0);
    store_async(&word, 55u, &barrier, 1);
    store_async(&other, 56u, &barrier, 1);
  }
  if (is_first && rank == 1) {
    mbarrier_wait(&barrier, 0);
    mine[1] = mbarrier_try_wait(&barrier, 0);
    mine[2] = word + other;
  }
  if (threadIdx.x >= 3 && threadIdx.x < 8) mine[threadIdx.x] = threadIdx.x;
  cluster_sync();
}

template <typename T>
__device__ T value_of(unsigned seed) {
  unsigned words[sizeof(T) / 4];
  for (unsigned i = 0; i < sizeof(T) / 4; ++i) words[i] = (seed + i) * 2654435761u;
  T value;
  memcpy(static_cast<void*>(&value), words, sizeof(T));
  return value;
}

/// Every thread sends a value to the block two ranks on.
template <typename T>
__global__ void send(T* out) {  // [blocks, kThreads]
  auto* box = dynamic_shared<T>();
  __shared__ uint64_t full;
  const int to = (cluster_rank() + 2) % cluster_size();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, kThreads * sizeof(T));
  }
  cluster_sync();
  store_async(box + (kThreads - 1 - threadIdx.x), value_of<T>(blockIdx.x * 1000 + threadIdx.x), &full, to);
  mbarrier_wait(&full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = box[threadIdx.x];
  cluster_sync();
}

/// Every thread of every block combines a number with one of rank 1's.
template <Red kOperation, typename T>
__global__ void combine(T* out) {  // [4]
  __shared__ T words[4];
  __shared__ uint64_t full;
  const T start = kOperation == Red::bit_and || kOperation == Red::min ? T(0x7fffffff) : T(0);
  if (threadIdx.x < 4) words[threadIdx.x] = start;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    if (cluster_rank() == 1)
      mbarrier_arrive_expect_tx(&full, uint32_t(unsigned(cluster_size()) * kThreads * sizeof(T)));
  }
  cluster_sync();
  const unsigned seed = (blockIdx.x * kThreads + threadIdx.x + 1) * 2654435761u;
  const T value = kOperation == Red::bit_and ? T(seed | 0x0f0f0f0f) : T(seed);
  red_async<kOperation>(words + threadIdx.x % 4, value, &full, 1);
  if (cluster_rank() == 1) {
    mbarrier_wait(&full, 0);
    if (threadIdx.x < 4) out[threadIdx.x] = words[threadIdx.x];
  }
  cluster_sync();
}

/// Copies parts of the own memory to the next block, from one offset to another.
__global__ void copy_on(unsigned* out) {  // [blocks, 256]
  auto* room = dynamic_shared<unsigned>();
  __shared__ uint64_t full;
  const unsigned self = threadIdx.x;
  for (unsigned i = self; i < 256; i += kThreads) room[i] = blockIdx.x * 1000 + i;
  fence_proxy_async();
  if (self == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, 256 + 16);
  }
  cluster_sync();
  const int next = (cluster_rank() + 1) % cluster_size();
  if (self == 0) {
    bulk_copy_to_rank(room + 128, room + 4, 256, &full, next);
    bulk_copy_to_rank(room + 252, room, 16, &full, next);
  }
  mbarrier_wait(&full, 0);
  for (unsigned i = self; i < 256; i += kThreads) out[blockIdx.x * 256 + i] = room[i];
  cluster_sync();
}

constexpr int kRows = 16;

/// The block of rank 1 loads a box for those of the mask.
__global__ void load_for(const __grid_constant__ CUtensorMap map, int columns, unsigned blocks, int x, int y,
                         unsigned* out) {  // [blocks, kRows * columns]
  auto* tile = dynamic_shared<unsigned>();
  __shared__ uint64_t full;
  const int words = kRows * columns;
  const bool gets = blocks >> cluster_rank() & 1;
  for (int i = int(threadIdx.x); i < words; i += int(kThreads)) tile[i] = 0xeeeeeeee;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    if (gets) mbarrier_arrive_expect_tx(&full, uint32_t(words) * 4);
  }
  cluster_sync();
  if (threadIdx.x == 0 && cluster_rank() == 1) tma_load_multicast(tile, map, &full, {x, y}, blocks);
  if (gets) mbarrier_wait(&full, 0);
  for (int i = int(threadIdx.x); i < words; i += int(kThreads)) out[int(blockIdx.x) * words + i] = tile[i];
  cluster_sync();
}

void multicast_case(const std::string& name, Swizzle swizzle, unsigned blocks, int x, int y) {
  const uint32_t columns = swizzle == Swizzle::none ? 16 : uint32_t(swizzle_bytes(swizzle) / 4);
  std::vector<unsigned> numbers(std::size_t(3 * columns) * 40);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = unsigned(i) * 2654435761u;
  const Values<unsigned> tensor(numbers);
  const CUtensorMap map = device::tensor_map({.dtype = DType::f32,
                                              .base = tensor.data(),
                                              .size = {3 * columns, 40},
                                              .stride = {3 * columns * 4},
                                              .box = {columns, kRows},
                                              .swizzle = swizzle});
  cluster_case<unsigned>(name, 4 * kRows * columns, 4, 4, kRows * columns * 4, load_for, map, int(columns),
                         blocks, x, y);
}

/// Bytes side by side for all blocks of a mask.
__global__ void load_row_for(const unsigned* row, unsigned blocks, unsigned* out) {  // [512], [blocks, 512]
  auto* room = dynamic_shared<unsigned>();
  __shared__ uint64_t full;
  const bool gets = blocks >> cluster_rank() & 1;
  for (unsigned i = threadIdx.x; i < 512; i += kThreads) room[i] = 0xeeeeeeee;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    if (gets) mbarrier_arrive_expect_tx(&full, 1024);
  }
  cluster_sync();
  if (threadIdx.x == 0 && cluster_rank() == 0) bulk_load_multicast(room + 64, row + 12, 1024, &full, blocks);
  if (gets) mbarrier_wait(&full, 0);
  for (unsigned i = threadIdx.x; i < 512; i += kThreads) out[blockIdx.x * 512 + i] = room[i];
  cluster_sync();
}

void run_cases() {
  cluster_case<int>("cluster ranks of (2,1,2)", 4 * 16, dim3(2, 1, 2), dim3(4, 2, 2), 0, ranks);
  cluster_case<int>("cluster ranks of (1,2,4)", 4 * 16, dim3(1, 2, 4), dim3(2, 2, 4), 0, ranks);
  cluster_case<unsigned>("cluster memory of 8 blocks", 8 * 8 * 2 * kThreads, 8, 8, kThreads * 4, look_around);
  cluster_case<unsigned>("cluster memory, atomics", 8 * 4, 4, 8, 0, count_together);
  cluster_case<unsigned>("cluster barrier answers", 2 * 8, 2, 2, 0, ask_a_barrier);
  cluster_case<unsigned>("st.async of 4 bytes", 4 * kThreads, 4, 4, kThreads * 4, send<unsigned>);
  cluster_case<uint2>("st.async of 8 bytes", 4 * kThreads, 4, 4, kThreads * 8, send<uint2>);
  cluster_case<uint4>("st.async of 16 bytes", 4 * kThreads, 4, 4, kThreads * 16, send<uint4>);
  cluster_case<unsigned>("red.async add", 4, 4, 4, 0, combine<Red::add, unsigned>);
  cluster_case<unsigned>("red.async min", 4, 4, 4, 0, combine<Red::min, unsigned>);
  cluster_case<unsigned>("red.async max", 4, 4, 4, 0, combine<Red::max, unsigned>);
  cluster_case<int>("red.async min of int", 4, 4, 4, 0, combine<Red::min, int>);
  cluster_case<int>("red.async max of int", 4, 4, 4, 0, combine<Red::max, int>);
  cluster_case<unsigned>("red.async and", 4, 4, 4, 0, combine<Red::bit_and, unsigned>);
  cluster_case<unsigned>("red.async or", 4, 4, 4, 0, combine<Red::bit_or, unsigned>);
  cluster_case<unsigned>("red.async xor", 4, 4, 4, 0, combine<Red::bit_xor, unsigned>);
  cluster_case<unsigned long long>("red.async add of 64 bits", 4, 4, 4, 0,
                                   combine<Red::add, unsigned long long>);
  cluster_case<unsigned>("bulk copy to the next block", 4 * 256, 4, 4, 1024, copy_on);
  multicast_case("TMA multicast to all", Swizzle::none, 0b1111, 16, 8);
  multicast_case("TMA multicast to others", Swizzle::none, 0b1101, 0, 4);
  multicast_case("TMA multicast over the edge", Swizzle::none, 0b0011, 40, 30);
  multicast_case("TMA multicast b32", Swizzle::b32, 0b1010, 8, 3);
  multicast_case("TMA multicast b64", Swizzle::b64, 0b1111, 4, 20);
  multicast_case("TMA multicast b128", Swizzle::b128, 0b0111, 32, -5);
  std::vector<unsigned> numbers(512);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = unsigned(i) * 40503u;
  const Values<unsigned> row(numbers);
  for (const unsigned mask : {0b1111u, 0b1000u})
    cluster_case<unsigned>("bulk multicast to " + std::to_string(mask), 4 * 512, 4, 4, 2048, load_row_for,
                           row.data(), mask);
}

const golden::Cases cases("cluster", &run_cases);

}  // namespace
}  // namespace flashbook
