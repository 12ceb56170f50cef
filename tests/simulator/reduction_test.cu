/// \file
/// What adds in global memory, copies in bulk, and hands data from block to block, asked of the machine of
/// this build.
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/ptx/atomic.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/dependent_launch.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "tests/require_gpu.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kThreads = 128, kBlocks = 9;
constexpr unsigned kRows = 16, kColumns = 32, kFloats = kRows * kColumns;

/// How a block adds a float of its own to each of a tile's elements.
enum class Way { tensor, bulk, red, red2, red4, atomic2, atomic4 };

/// Block b adds (b + 1) * i to element i of the tile at row 8; those behind row 24 of 24 are no more there.
template <Way kWay>
__global__ void add_tile(const __grid_constant__ CUtensorMap map, float* sum) {
  auto* tile = dynamic_shared<float>();
  const auto factor = float(blockIdx.x + 1);
  for (unsigned i = threadIdx.x; i < kFloats; i += kThreads) tile[i] = factor * float(i);
  fence_proxy_async();  // TMA reads what these threads wrote
  __syncthreads();
  float* to = sum + 8 * kColumns;
  if (threadIdx.x == 0 && (kWay == Way::tensor || kWay == Way::bulk)) {
    if (kWay == Way::tensor)
      tma_reduce_add(map, tile, {0, 8});
    else
      bulk_reduce_add(to, tile, kFloats * sizeof(float));
    tma_store_commit();
    tma_store_wait_read<0>();
  }
  if (kWay == Way::red)
    for (unsigned i = threadIdx.x; i < kFloats; i += kThreads) red_add(to + i, tile[i]);
  for (unsigned i = 2 * threadIdx.x; i < kFloats; i += 2 * kThreads) {
    const float2 two = make_float2(tile[i], tile[i + 1]);
    if (kWay == Way::red2) red_add(reinterpret_cast<float2*>(to + i), two);
    if (kWay == Way::atomic2) atomicAdd(reinterpret_cast<float2*>(to + i), two);
  }
  for (unsigned i = 4 * threadIdx.x; i < kFloats; i += 4 * kThreads) {
    const float4 four = make_float4(tile[i], tile[i + 1], tile[i + 2], tile[i + 3]);
    if (kWay == Way::red4) red_add(reinterpret_cast<float4*>(to + i), four);
    if (kWay == Way::atomic4) atomicAdd(reinterpret_cast<float4*>(to + i), four);
  }
}

/// Copies by way of shared memory.
__global__ void copy_in_bulk(const float* from, float* to) {  // [kBlocks, kFloats]
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full;
  constexpr uint32_t kBytes = kFloats * sizeof(float);
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, kBytes);
    bulk_load(tile, from + blockIdx.x * kFloats, kBytes, &full);
  }
  __syncthreads();
  mbarrier_wait(&full, 0);
  for (unsigned i = threadIdx.x; i < kFloats; i += kThreads) tile[i] *= 2;
  fence_proxy_async();  // the store reads what these threads wrote
  __syncthreads();
  if (threadIdx.x == 0) {
    bulk_store(to + blockIdx.x * kFloats, tile, kBytes);
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

/// Each block adds its tile when the one before it has: the order of additions is the blocks'.
__global__ void add_in_turn(float* sum, int* turn) {  // [kFloats]
  auto* tile = dynamic_shared<float>();
  for (unsigned i = threadIdx.x; i < kFloats; i += kThreads)
    tile[i] = 1.0f / float(blockIdx.x * kFloats + i + 1);
  fence_proxy_async();  // TMA reads what these threads wrote
  __syncthreads();
  if (threadIdx.x == 0) {
    while (load_acquire(turn) != int(blockIdx.x)) {
    }
    bulk_reduce_add(sum, tile, kFloats * sizeof(float));
    tma_store_commit();
    tma_store_wait<0>();  // in memory, not only read: the next block adds to it
    store_release(turn, int(blockIdx.x) + 1);
  }
}

/// Every block leaves a row of numbers; the last to come adds them up. By way of TMA, if `by_tma`.
__global__ void last_adds_up(float* rows, float* sum, unsigned* arrived,
                             bool by_tma) {  // [kBlocks, kThreads]
  auto* all = dynamic_shared<float>();
  __shared__ uint64_t full;
  __shared__ bool is_last;
  rows[blockIdx.x * kThreads + threadIdx.x] = float(blockIdx.x + threadIdx.x);
  fence_proxy_async_global();  // TMA of the last block reads what these threads wrote
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomic_add_acq_rel(arrived, 1u) == gridDim.x - 1;
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (!is_last) return;
  constexpr uint32_t kBytes = kBlocks * kThreads * sizeof(float);
  if (by_tma && threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, kBytes);
    bulk_load(all, rows, kBytes, &full);
  }
  if (by_tma) mbarrier_wait(&full, 0);
  float total = 0;
  for (unsigned block = 0; block < kBlocks; ++block)
    total += (by_tma ? all : rows)[block * kThreads + threadIdx.x];
  sum[threadIdx.x] = total;
}

/// Who adds to a counter by red_add_release is counted by who waits for it: within a block, warp by warp.
__global__ void count_up(unsigned* counter, float* rows, float* out) {  // [kThreads / 32, 32]
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  rows[threadIdx.x] = float(threadIdx.x);
  __syncwarp();
  if (lane == 0) red_add_release(counter, 1u);
  if (lane == 0)
    while (load_acquire(counter) < kThreads / 32) {
    }
  __syncwarp();
  out[threadIdx.x] = rows[(warp + 1) * 32 % kThreads + lane];
}

/// Two launches that overlap: the second reads what the first has written.
__global__ void write_first(int* words) {
  let_dependents_launch();
  words[blockIdx.x * kThreads + threadIdx.x] = int(threadIdx.x);
}
__global__ void read_then(const int* words, int* out) {
  if (threadIdx.x == 0) wait_for_launch_before();
  __syncthreads();
  const unsigned self = blockIdx.x * kThreads + threadIdx.x;
  out[self] = words[self] + 1;
}

class Reduction : public HopperTest {
 protected:
  template <Way kWay>
  void expect_sums(const std::string& name) {
    constexpr unsigned kTensorRows = 24;
    const Values<float> sum(std::vector<float>(kTensorRows * kColumns, 1.0f));
    const CUtensorMap map = device::tensor_map({.dtype = DType::f32,
                                                .base = sum.data(),
                                                .size = {kColumns, kTensorRows - 4},
                                                .stride = {4 * kColumns},
                                                .box = {kColumns, kRows}});
    device::launch(add_tile<kWay>, kBlocks, kThreads, kFloats * sizeof(float), nullptr, map, sum.data());
    const auto sums = sum.get();
    for (unsigned i = 0; i < sums.size(); ++i) {
      // The map has four rows less.
      const bool added = i >= 8 * kColumns && (kWay != Way::tensor || i < 20 * kColumns);
      const float expected = 1 + (added ? 45 * float(i - 8 * kColumns) : 0);
      ASSERT_EQ(sums[i], expected) << name << ", row " << i / kColumns << ", column " << i % kColumns;
    }
  }
};

TEST_F(Reduction, SumsAreWholeWhateverAdds) {
  expect_sums<Way::tensor>("tma_reduce_add");
  expect_sums<Way::bulk>("bulk_reduce_add");
  expect_sums<Way::red>("red_add");
  expect_sums<Way::red2>("red_add of float2");
  expect_sums<Way::red4>("red_add of float4");
  expect_sums<Way::atomic2>("atomicAdd of float2");
  expect_sums<Way::atomic4>("atomicAdd of float4");
}

TEST_F(Reduction, BytesGoThroughSharedMemory) {
  std::vector<float> numbers(kBlocks * kFloats);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
  const Values<float> from(numbers), to(numbers.size());
  device::launch(copy_in_bulk, kBlocks, kThreads, kFloats * sizeof(float), nullptr, from.data(), to.data());
  for (float& number : numbers) number *= 2;
  EXPECT_EQ(to.get(), numbers);
}

TEST_F(Reduction, BlocksAddInTurn) {
  const Values<float> sum(std::vector<float>(kFloats, 0.0f));
  const Values<int> turn(std::vector<int>{0});
  device::launch(add_in_turn, kBlocks, kThreads, kFloats * sizeof(float), nullptr, sum.data(), turn.data());
  const auto sums = sum.get();
  for (unsigned i = 0; i < kFloats; ++i) {
    float expected = 0;
    for (unsigned block = 0; block < kBlocks; ++block) expected += 1.0f / float(block * kFloats + i + 1);
    ASSERT_EQ(sums[i], expected) << "the order of additions decides the rounding";
  }
}

TEST_F(Reduction, TheLastBlockSeesWhatAllHaveWritten) {
  for (const bool by_tma : {false, true}) {
    const Values<float> rows(kBlocks * kThreads), sum(kThreads);
    const Values<unsigned> arrived(std::vector<unsigned>{0});
    device::launch(last_adds_up, kBlocks, kThreads, kBlocks * kThreads * sizeof(float), nullptr, rows.data(),
                   sum.data(), arrived.data(), by_tma);
    const auto sums = sum.get();
    for (unsigned i = 0; i < kThreads; ++i) ASSERT_EQ(sums[i], float(kBlocks * i + 36)) << by_tma;
  }
}

TEST_F(Reduction, ALaunchWaitsForTheOneBefore) {
  const Values<int> words(kBlocks * kThreads), out(kBlocks * kThreads);
  device::launch(write_first, kBlocks, kThreads, 0, nullptr, words.data());
  device::launch_dependent(read_then, kBlocks, kThreads, 0, nullptr, words.data(), out.data());
  const auto seen = out.get();
  for (unsigned i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], int(i % kThreads) + 1);
}

TEST_F(Reduction, WarpsWaitForACounter) {
  const Values<float> rows(kThreads), out(kThreads);
  const Values<unsigned> counter(std::vector<unsigned>{0});
  device::launch(count_up, 1, kThreads, 0, nullptr, counter.data(), rows.data(), out.data());
  const auto seen = out.get();
  for (unsigned i = 0; i < kThreads; ++i) ASSERT_EQ(seen[i], float((i + 32) % kThreads));
}

}  // namespace
}  // namespace flashbook
