/// \file
/// What Hopper's instructions promise, asked of the machine of this build: mbarriers, TMA, setmaxnreg.
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/tma.h"
#include "tests/require_gpu.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr int kRows = 64;  // of a tile

/// Loads a box, writes down the tile byte by byte where the swizzle says, adds 1 to every element and stores
/// the box again.
template <Swizzle kSwizzle>
__global__ void through_shared_memory(const __grid_constant__ CUtensorMap from,
                                      const __grid_constant__ CUtensorMap to,
                                      uint16_t* out) {  // [kRows, span / 2]
  constexpr uint32_t kSpan = swizzle_bytes(kSwizzle);
  auto* tile = dynamic_shared<unsigned char>();
  __shared__ uint64_t full;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    name_mbarrier(&full, "full");
    mbarrier_arrive_expect_tx(&full, kRows * kSpan);
    tma_prefetch(to);
    tma_load(tile, from, &full, {0, 32}, KeepInL2::evict_first);
  }
  __syncthreads();
  mbarrier_wait(&full, 0);
  for (uint32_t i = threadIdx.x; i < kRows * kSpan / 2; i += blockDim.x) {
    auto* element = reinterpret_cast<uint16_t*>(tile + swizzled(kSwizzle, 2 * i));
    out[i] = *element;
    *element += 1;
  }
  fence_proxy_async();  // the store reads what these threads wrote
  __syncthreads();
  if (threadIdx.x > 0) return;
  tma_store(to, tile, {0, 0});
  tma_store_commit();
  tma_store_wait_read<0>();
}

/// A warpgroup that loads, two that add up what they see, and two stages: every tile is used once by each.
__global__ void __launch_bounds__(384, 1)
    producer_and_consumers(const __grid_constant__ CUtensorMap map, unsigned* sums, int tiles) {  // [2, 128]
  constexpr int kStages = 2;
  constexpr uint32_t kWords = 32 * 16, kBytes = kWords * 4;
  auto* tile = dynamic_shared<unsigned>();
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], 256);
      name_mbarrier(&full[i], "full", i);
      name_mbarrier(&empty[i], "empty", i);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    setmaxnreg_dec<24>();
    for (int i = 0; threadIdx.x == 0 && i < tiles; ++i) {
      const int stage = i % kStages;
      mbarrier_wait(&empty[stage], unsigned(i / kStages + 1) & 1);  // its readers are done with it
      mbarrier_arrive_expect_tx(&full[stage], kBytes);
      tma_load(tile + unsigned(stage) * kWords, map, &full[stage], {0, 16 * i}, KeepInL2::evict_last);
    }
    return;
  }
  setmaxnreg_inc<240>();
  unsigned sum = 0;
  for (int i = 0; i < tiles; ++i) {
    const int stage = i % kStages;
    mbarrier_wait(&full[stage], unsigned(i / kStages) & 1);
    for (unsigned word = threadIdx.x % 128; word < kWords; word += 128)
      sum += tile[unsigned(stage) * kWords + word] * unsigned(i + 1);
    mbarrier_arrive(&empty[stage]);
  }
  sums[threadIdx.x - 128] = sum;
}

/// Threads meet at an mbarrier as at __syncthreads, some by polling.
__global__ void meet(int* out, int rounds) {  // [threads]
  __shared__ uint64_t barrier;
  __shared__ int mailbox[2];
  if (threadIdx.x == 0) mbarrier_init(&barrier, blockDim.x);
  __syncthreads();
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x == unsigned(round) % blockDim.x) mailbox[round % 2] = round;
    mbarrier_arrive(&barrier);
    if (threadIdx.x % 2 == 0)
      mbarrier_wait(&barrier, unsigned(round) & 1);
    else
      while (!mbarrier_try_wait(&barrier, unsigned(round) & 1)) {
      }
    sum += mailbox[round % 2];
  }
  out[threadIdx.x] = sum;
}

class Hopper : public HopperTest {};

template <Swizzle kSwizzle>
void expect_round_trip() {
  constexpr std::size_t kColumns = swizzle_bytes(kSwizzle) / 2, kAll = 2 * kRows;
  std::vector<uint16_t> numbers(kAll * kColumns);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = uint16_t(i);
  const Values<uint16_t> from(numbers), to(kRows * kColumns), out(kRows * kColumns);
  const auto map = [&](const Values<uint16_t>& tensor, std::size_t rows) {
    return device::tensor_map({.dtype = DType::bf16,
                               .base = tensor.data(),
                               .size = {kColumns, rows},
                               .stride = {2 * kColumns},
                               .box = {kColumns, kRows},
                               .swizzle = kSwizzle});
  };
  device::launch(through_shared_memory<kSwizzle>, 1, 128, kRows * kColumns * 2, nullptr, map(from, kAll),
                 map(to, kRows), out.data());
  const auto seen = out.get(), stored = to.get();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    ASSERT_EQ(seen[i], uint16_t(32 * kColumns + i)) << "row " << i / kColumns << ", column " << i % kColumns;
    ASSERT_EQ(stored[i], uint16_t(seen[i] + 1)) << "row " << i / kColumns << ", column " << i % kColumns;
  }
}

TEST_F(Hopper, TilesGoThroughSharedMemorySwizzled) {
  expect_round_trip<Swizzle::none>();
  expect_round_trip<Swizzle::b32>();
  expect_round_trip<Swizzle::b64>();
  expect_round_trip<Swizzle::b128>();
}

TEST_F(Hopper, ProducerAndConsumersShareStagesAndRegisters) {
  constexpr unsigned kTiles = 9;
  std::vector<unsigned> words(kTiles * 512), expected(256);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = unsigned(i) * 2654435761u;
    expected[i % 128] += words[i] * unsigned(i / 512 + 1);
  }
  for (std::size_t i = 128; i < 256; ++i) expected[i] = expected[i - 128];
  const Values<unsigned> tensor(words), sums(256);
  const CUtensorMap map = device::tensor_map({.dtype = DType::f32,
                                              .base = tensor.data(),
                                              .size = {32, 16 * kTiles},
                                              .stride = {128},
                                              .box = {32, 16}});
  device::launch(producer_and_consumers, 1, 384, 2 * 2048, nullptr, map, sums.data(), int(kTiles));
  EXPECT_EQ(sums.get(), expected);
}

TEST_F(Hopper, ThreadsMeetAtAnMbarrier) {
  constexpr int kRounds = 33;
  const Values<int> out(96);
  device::launch(meet, 1, 96, 0, nullptr, out.data(), kRounds);
  for (int sum : out.get()) EXPECT_EQ(sum, kRounds * (kRounds - 1) / 2);
}

}  // namespace
}  // namespace flashbook
