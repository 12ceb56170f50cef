/// \file
/// What clusters promise, asked of the machine of this build: ranks, distributed shared memory, barriers of
/// the cluster and of other blocks, asynchronous stores, and copies to several blocks.
#include <algorithm>
#include <numeric>
#include <vector>

#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/cluster.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "tests/require_gpu.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 64;

class HopperCluster : public HopperTest {};

/// Where each block stands.
__global__ void write_ranks(int* out) {  // [grid.z, grid.y, grid.x, 2]
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x > 0) return;
  out[2 * block] = cluster_rank();
  out[2 * block + 1] = cluster_size();
}

TEST_F(HopperCluster, RanksCountXFirst) {
  const dim3 grid(4, 2, 2), cluster(2, 1, 2);
  const Values<int> out(32), alone(4);
  device::launch_cluster(cluster, write_ranks, grid, 32, 0, nullptr, out.data());
  const std::vector<int> seen = out.get();
  for (unsigned z = 0; z < 2; ++z)
    for (unsigned y = 0; y < 2; ++y)
      for (unsigned x = 0; x < 4; ++x) {
        EXPECT_EQ(seen[2 * ((z * 2 + y) * 4 + x)], int(x % 2 + 2 * z)) << x << " " << y << " " << z;
        EXPECT_EQ(seen[2 * ((z * 2 + y) * 4 + x) + 1], 4);
      }
  device::launch(write_ranks, 2, 32, 0, nullptr, alone.data());
  EXPECT_EQ(alone.get(), (std::vector<int>{0, 1, 0, 1}));
}

/// Each block reads and writes its neighbour's arrays, dynamic and static, and all count in rank 0.
__global__ void reach_around(int* out) {  // [blocks, 4, kThreads]
  auto* numbers = dynamic_shared<int>();  // [kThreads] of the block's own, [kThreads] for its neighbour
  __shared__ int kept[kThreads];
  __shared__ int count;
  __shared__ float sum;
  const int rank = cluster_rank(), next = (rank + 1) % cluster_size();
  const int self = int(threadIdx.x), block = int(blockIdx.x);
  numbers[self] = 1000 * block + self;
  kept[self] = -self - block;
  if (self == 0) {
    count = 0;
    sum = 0.0f;
  }
  cluster_sync();
  mapa(numbers, next)[kThreads + unsigned(self)] = 7 * block + self;
  const int seen = *mapa(numbers + self, next), seen_too = mapa(kept, next)[self];
  atomicAdd(mapa(&count, 0), self);
  atomicAdd(mapa(&sum, 0), 0.5f);
  cluster_sync();
  int* mine = out + 4 * int(kThreads) * block + self;
  mine[0] = seen;
  mine[kThreads] = seen_too;
  mine[2 * kThreads] = numbers[kThreads + unsigned(self)];
  mine[3 * kThreads] = *mapa(&count, 0) + int(*mapa(&sum, 0));
  cluster_sync();
}

TEST_F(HopperCluster, BlocksReachIntoEachOthersMemory) {
  constexpr int kSelves = int(kThreads);
  for (const int size : {1, 2, 4, 8}) {
    const int blocks = 2 * size;
    const Values<int> out(std::size_t(4 * blocks * kSelves));
    device::launch_cluster(dim3(unsigned(size)), reach_around, dim3(unsigned(blocks)), kThreads,
                           2 * kThreads * sizeof(int), nullptr, out.data());
    const std::vector<int> seen = out.get();
    for (int block = 0; block < blocks; ++block) {
      const int first = block / size * size, rank = block % size;
      const int next = first + (rank + 1) % size, before = first + (rank + size - 1) % size;
      for (int self = 0; self < kSelves; ++self) {
        const auto at = [&](int which) { return seen[std::size_t((4 * block + which) * kSelves + self)]; };
        ASSERT_EQ(at(0), 1000 * next + self) << size << " " << block;
        ASSERT_EQ(at(1), -self - next) << size << " " << block;
        ASSERT_EQ(at(2), 7 * before + self) << size << " " << block;
        ASSERT_EQ(at(3), size * (kSelves * (kSelves - 1) / 2) + size * kSelves / 2) << size << " " << block;
      }
    }
  }
}

/// Between arrival and wait others' work is neither known nor disturbed.
__global__ void meet_in_halves(int* out, int rounds) {  // [blocks]
  __shared__ int box[2];
  const int rank = cluster_rank(), before = (rank + cluster_size() - 1) % cluster_size();
  cluster_arrive_relaxed();
  cluster_wait();
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) box[round % 2] = 100 * round + int(blockIdx.x);
    cluster_arrive();
    sum += round;
    cluster_wait();
    sum += *mapa(&box[round % 2], before);
  }
  if (threadIdx.x == 5) out[blockIdx.x] = sum;
  cluster_sync();
}

TEST_F(HopperCluster, ArrivalAndWaitAreTwoHalvesOfABarrier) {
  const Values<int> out(8);
  device::launch_cluster(4, meet_in_halves, 8, kThreads, 0, nullptr, out.data(), 5);
  const std::vector<int> seen = out.get();
  for (int block = 0; block < 8; ++block)
    EXPECT_EQ(seen[std::size_t(block)], 10 + 1000 + 5 * (block / 4 * 4 + (block + 3) % 4));
}

/// A token goes round: each block waits for the one before, adds to a word in the next one, and arrives
/// there.
__global__ void pass_on(int* out, int rounds) {  // [blocks]
  __shared__ uint64_t turn;
  __shared__ int token;
  const int rank = cluster_rank(), next = (rank + 1) % cluster_size();
  if (threadIdx.x == 0) {
    mbarrier_init(&turn, 1);
    fence_mbarrier_init();
    name_mbarrier(&turn, "turn");
    token = 0;
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    for (int round = 0; round < rounds; ++round) {
      if (rank > 0 || round > 0) {
        const unsigned parity = unsigned(rank > 0 ? round : round - 1) & 1;
        if (round % 2)
          mbarrier_wait_cluster(&turn, parity);
        else
          while (!mbarrier_try_wait_cluster(&turn, parity)) {
          }
      }
      *mapa(&token, next) = token + rank + 1;
      mbarrier_arrive_at(&turn, next);
    }
    if (rank == 0) mbarrier_wait_cluster(&turn, unsigned(rounds - 1) & 1);
    out[blockIdx.x] = token;
  }
  cluster_sync();
}

TEST_F(HopperCluster, ATokenGoesRoundByRemoteArrivals) {
  const Values<int> out(6);
  device::launch_cluster(3, pass_on, 6, 32, 0, nullptr, out.data(), 4);
  const std::vector<int> seen = out.get();
  for (int block = 0; block < 6; ++block)
    EXPECT_EQ(seen[std::size_t(block)], block % 3 == 0 ? 24 : 18 + (block % 3 == 1 ? 1 : 3));
}

/// Every thread sends words of 4, 8 and 16 bytes to the next block, and combines others there.
__global__ void send(unsigned* out) {        // [blocks, 8 * kThreads + 8]
  auto* words = dynamic_shared<unsigned>();  // [8, kThreads]
  __shared__ uint64_t full;
  __shared__ unsigned combined[6];
  __shared__ int least, most;
  __shared__ __align__(8) unsigned long long long_sum;
  const int next = (cluster_rank() + 1) % cluster_size();
  const unsigned self = threadIdx.x, block = blockIdx.x;
  if (self == 0) {
    mbarrier_init(&full, 2);
    fence_mbarrier_init();
    name_mbarrier(&full, "full");
    for (unsigned& word : combined) word = 0;
    combined[1] = ~0u;
    combined[3] = ~0u;
    least = most = 0;
    long_sum = 0xffffffff;
    mbarrier_arrive_expect_tx(&full, kThreads * (4 + 8 + 16));
  }
  cluster_sync();
  store_async(words + self, block * 1000 + self, &full, next);
  store_async(reinterpret_cast<uint2*>(words + 2 * kThreads) + self, make_uint2(self, block), &full, next);
  store_async(reinterpret_cast<uint4*>(words + 4 * kThreads) + self,
              make_uint4(self, self + 1, self + 2, block), &full, next);
  if (self == 0) mbarrier_arrive_expect_tx_at(&full, next, kThreads * (6 * 4 + 2 * 4 + 8));
  red_async<Red::add>(&combined[0], self, &full, next);
  red_async<Red::min>(&combined[1], self + 3, &full, next);
  red_async<Red::max>(&combined[2], self * 3, &full, next);
  red_async<Red::bit_and>(&combined[3], ~(1u << self % 32), &full, next);
  red_async<Red::bit_or>(&combined[4], 1u << self % 16, &full, next);
  red_async<Red::bit_xor>(&combined[5], self * 77, &full, next);
  red_async<Red::min>(&least, -int(self), &full, next);
  red_async<Red::max>(&most, int(self) - 9, &full, next);
  red_async<Red::add>(&long_sum, 1ull << 32, &full, next);
  mbarrier_wait(&full, 0);
  unsigned* mine = out + (8 * kThreads + 9) * block;
  for (unsigned i = self; i < 8 * kThreads; i += kThreads)
    mine[i] = i < kThreads || i >= 2 * kThreads ? words[i] : 0;
  if (self == 0) {
    for (unsigned i = 0; i < 6; ++i) mine[8 * kThreads + i] = combined[i];
    mine[8 * kThreads + 6] = unsigned(least);
    mine[8 * kThreads + 7] = unsigned(most);
    mine[8 * kThreads + 8] = unsigned(long_sum >> 32) + unsigned(long_sum);
  }
  cluster_sync();
}

TEST_F(HopperCluster, WordsAreSentAndCombined) {
  constexpr unsigned kOfBlock = 8 * kThreads + 9;
  const Values<unsigned> out(std::size_t(4 * kOfBlock));
  device::launch_cluster(2, send, 4, kThreads, 8 * kThreads * 4, nullptr, out.data());
  const std::vector<unsigned> seen = out.get();
  for (unsigned block = 0; block < 4; ++block) {
    const unsigned* mine = &seen[kOfBlock * block];
    const unsigned before = block ^ 1;
    for (unsigned self = 0; self < kThreads; ++self) {
      ASSERT_EQ(mine[self], before * 1000 + self);
      ASSERT_EQ(mine[2 * kThreads + 2 * self], self);
      ASSERT_EQ(mine[2 * kThreads + 2 * self + 1], before);
      ASSERT_EQ(mine[4 * kThreads + 4 * self + 2], self + 2);
      ASSERT_EQ(mine[4 * kThreads + 4 * self + 3], before);
    }
    unsigned all = 0;
    for (unsigned self = 0; self < kThreads; ++self) all ^= self * 77;
    const std::vector<unsigned> combined(mine + 8 * kThreads, mine + kOfBlock);
    EXPECT_EQ(combined,
              (std::vector<unsigned>{kThreads * (kThreads - 1) / 2, 3, (kThreads - 1) * 3, 0, 0xffff, all,
                                     unsigned(1 - int(kThreads)), kThreads - 10, kThreads + ~0u}));
  }
}

/// Rank 0 fills a row and copies it to all others.
__global__ void copy_to_all(const int* in, int* out) {  // [kThreads], [blocks, kThreads]
  auto* row = dynamic_shared<int>();
  __shared__ uint64_t full;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    if (cluster_rank() > 0) mbarrier_arrive_expect_tx(&full, kThreads * 4);
  }
  if (cluster_rank() == 0) row[threadIdx.x] = in[threadIdx.x];
  fence_proxy_async();
  cluster_sync();
  if (cluster_rank() == 0 && threadIdx.x == 0)
    for (int rank = 1; rank < cluster_size(); ++rank) bulk_copy_to_rank(row, row, kThreads * 4, &full, rank);
  if (cluster_rank() > 0) mbarrier_wait(&full, 0);
  out[blockIdx.x * kThreads + threadIdx.x] = row[threadIdx.x];
  cluster_sync();
}

TEST_F(HopperCluster, ABlockCopiesItsMemoryToOthers) {
  std::vector<int> numbers(kThreads);
  std::iota(numbers.begin(), numbers.end(), 500);
  const Values<int> in(numbers), out(8 * kThreads);
  device::launch_cluster(4, copy_to_all, 8, kThreads, kThreads * 4, nullptr, in.data(), out.data());
  const std::vector<int> seen = out.get();
  for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], numbers[i % kThreads]) << i;
}

constexpr int kRows = 16, kColumns = 32, kStages = 2;  // of a box

/// Every block loads its part of each tile for all of them: a ring whose stages are given back to every
/// block.
__global__ void share_loads(const __grid_constant__ CUtensorMap map, const int* row,
                            int* sums,  // [blocks, kThreads]
                            int tiles) {
  constexpr unsigned kWords = kRows * kColumns, kBytes = kWords * 4;
  auto* stages = dynamic_shared<int>();  // [kStages, cluster_size(), kWords], then [kColumns]
  __shared__ uint64_t full[kStages], empty[kStages], row_full;
  const int size = cluster_size(), rank = cluster_rank();
  int* const shared_row = stages + kStages * size * int(kWords);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], unsigned(size));
      name_mbarrier(&full[i], "full", i);
      name_mbarrier(&empty[i], "empty", i);
    }
    mbarrier_init(&row_full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&row_full, kColumns * 4);
  }
  cluster_sync();
  const auto everybody = (1u << size) - 1;
  if (threadIdx.x == 0 && rank == size - 1)
    bulk_load_multicast(shared_row, row, kColumns * 4, &row_full, everybody);
  mbarrier_wait(&row_full, 0);
  int sum = 0;
  for (int i = 0; i < tiles; ++i) {
    const int stage = i % kStages;
    const unsigned parity = unsigned(i / kStages) & 1;
    if (threadIdx.x == 0) {
      mbarrier_wait_cluster(&empty[stage], parity ^ 1);  // all blocks are done with it
      mbarrier_arrive_expect_tx(&full[stage], unsigned(size) * kBytes);
      tma_load_multicast(stages + (stage * size + rank) * int(kWords), map, &full[stage],
                         {0, (i * size + rank) * kRows}, everybody);
    }
    mbarrier_wait(&full[stage], parity);
    for (unsigned word = threadIdx.x; word < unsigned(size) * kWords; word += blockDim.x)
      sum += stages[unsigned(stage) * unsigned(size) * kWords + word] * shared_row[word % kColumns];
    __syncthreads();
    if (threadIdx.x < unsigned(size)) mbarrier_arrive_at(&empty[stage], int(threadIdx.x));
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  cluster_sync();
}

TEST_F(HopperCluster, BlocksLoadTilesForEachOther) {
  constexpr int kTiles = 5;
  for (const int size : {1, 2, 4}) {
    const int rows = kTiles * size * kRows;
    std::vector<int> numbers(std::size_t(rows * kColumns)), weights(kColumns);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = int(i % 1009);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = int(i * i % 7);
    const Values<int> tensor(numbers), row(weights), sums(std::size_t(2 * size) * kThreads);
    const CUtensorMap map = device::tensor_map({.dtype = DType::f32,
                                                .base = tensor.data(),
                                                .size = {kColumns, std::size_t(rows)},
                                                .stride = {kColumns * 4},
                                                .box = {kColumns, kRows}});
    device::launch_cluster(dim3(unsigned(size)), share_loads, dim3(unsigned(2 * size)), kThreads,
                           std::size_t(kStages * size * kRows * kColumns + kColumns) * 4, nullptr, map,
                           row.data(), sums.data(), kTiles);
    const std::vector<int> seen = sums.get();
    for (unsigned self = 0; self < kThreads; ++self) {
      int expected = 0;
      for (std::size_t i = 0; i < numbers.size(); ++i)
        if (i % kThreads == self) expected += numbers[i] * weights[i % kColumns];
      for (int block = 0; block < 2 * size; ++block)
        ASSERT_EQ(seen[std::size_t(block) * kThreads + self], expected)
            << size << " " << block << " " << self;
    }
  }
}

/// Some blocks only: the others' memory stays as it is.
__global__ void load_for_some(const int* in, int* out, unsigned blocks) {  // [32], [blocks, 32]
  auto* row = dynamic_shared<int>();
  __shared__ uint64_t full;
  const bool gets = blocks >> cluster_rank() & 1;
  row[threadIdx.x] = -1;
  fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    if (gets) mbarrier_arrive_expect_tx(&full, 128);
  }
  cluster_sync();
  if (cluster_rank() == 1 && threadIdx.x == 0) bulk_load_multicast(row, in, 128, &full, blocks);
  if (gets) mbarrier_wait(&full, 0);
  out[blockIdx.x * 32 + threadIdx.x] = row[threadIdx.x];
  cluster_sync();
}

TEST_F(HopperCluster, AMulticastReachesTheBlocksOfItsMask) {
  std::vector<int> numbers(32);
  std::iota(numbers.begin(), numbers.end(), 1);
  const Values<int> in(numbers), out(4 * 32);
  for (const unsigned mask : {0b0001u, 0b0010u, 0b1101u, 0b1111u}) {
    device::launch_cluster(4, load_for_some, 4, 32, 128, nullptr, in.data(), out.data(), mask);
    const std::vector<int> seen = out.get();
    for (unsigned i = 0; i < 128; ++i)
      ASSERT_EQ(seen[i], mask >> i / 32 & 1 ? int(i % 32) + 1 : -1) << mask << " " << i;
  }
}

TEST_F(HopperCluster, AMachineRefusesClustersThatDoNotFit) {
  const Values<int> out(64);
  const auto launch = [&](dim3 cluster, dim3 grid) {
    device::launch_cluster(cluster, write_ranks, grid, 32, 0, nullptr, out.data());
  };
  EXPECT_THROW(launch(2, 3), device::DeviceError);
  EXPECT_THROW(launch(dim3(3, 3), dim3(3, 3)), device::DeviceError);
  EXPECT_THROW(launch(dim3(1, 2), dim3(2, 3)), device::DeviceError);
  EXPECT_NO_THROW(launch(dim3(2, 2, 2), dim3(2, 2, 2)));
  device::synchronize();
}

}  // namespace
}  // namespace flashbook
