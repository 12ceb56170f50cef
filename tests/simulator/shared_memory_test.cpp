#include <cmath>
#include <vector>

#include "common/ptx/convert.h"
#include "common/simulator/block/static_shared.h"
#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

/// Reports the block's initial shared memory and overwrites it.
template <typename T>
__global__ void find_and_leave(unsigned char* found, int bytes_of_dynamic_shared) {
  __shared__ T tile[40][33];
  __shared__ __align__(128) T aligned[8];
  found += std::size_t(blockIdx.x) * 2;
  auto* tile_bytes = reinterpret_cast<unsigned char*>(tile);
  auto* dynamic_bytes = dynamic_shared<unsigned char>();
  if (threadIdx.x == 0) {
    found[0] = found[1] = 1;
    for (std::size_t i = 0; i < sizeof tile; ++i) found[0] &= tile_bytes[i] == 0xff;
    for (std::size_t i = 0; i < sizeof aligned; ++i)
      found[0] &= reinterpret_cast<unsigned char*>(aligned)[i] == 0xff;
    for (int i = 0; i < bytes_of_dynamic_shared; ++i) found[1] &= dynamic_bytes[i] == 0xff;
  }
  __syncthreads();
  for (std::size_t i = threadIdx.x; i < sizeof tile; i += blockDim.x) tile_bytes[i] = 7;
  for (int i = threadIdx.x; i < bytes_of_dynamic_shared; i += blockDim.x) dynamic_bytes[i] = 7;
  if (threadIdx.x < 8) aligned[threadIdx.x] = T{};
}

/// An array that is never written: a compiler might assume that it is still zero.
__global__ void read_only(float* found) {
  __shared__ float never_written[4];
  found[threadIdx.x] = never_written[threadIdx.x];
}

/// An array of a vector type; some compilers give a thread_local one a guard variable.
template <int kCount>
__global__ void vectors(float* found) {
  __shared__ float4 rows[kCount];
  found[threadIdx.x] = rows[threadIdx.x].w;
  rows[threadIdx.x] = make_float4(1, 2, 3, 4);
}

/// Arrays in a function that kernels call and in a lambda.
__device__ float block_sum(float value) {
  __shared__ float values[64];
  values[threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) sum += values[i];
  __syncthreads();
  return sum;
}
__global__ void nested(float* found, float* sum) {
  const auto first = [] {
    __shared__ float in_lambda[2];
    const float was = in_lambda[0];
    in_lambda[0] = 5;
    return was;
  };
  if (threadIdx.x == 0) found[blockIdx.x] = first();
  sum[blockIdx.x] = block_sum(1.0f);
}

__global__ void write_dynamic(int bytes) {
  for (int i = 0; i < bytes; ++i) dynamic_shared<unsigned char>()[i] = 1;
}

using SharedMemory = sim::SimulatorTest;

template <typename T>
void expect_poison_in_every_block() {
  constexpr int kBlocks = 50, kBytes = 5000;
  std::vector<unsigned char> found(2 * kBlocks);
  for (int again = 0; again < 2; ++again) {
    sim::run_grid(kBlocks, 64, kBytes, [&] { find_and_leave<T>(found.data(), kBytes); });
    for (int block = 0; block < kBlocks; ++block) {
      EXPECT_EQ(found[std::size_t(2 * block)], 1) << "static, block " << block;
      EXPECT_EQ(found[std::size_t(2 * block + 1)], 1) << "dynamic, block " << block;
    }
  }
}

TEST_F(SharedMemory, IsPoisonedBeforeEveryBlock) {
  for (int os_threads : {1, 3}) {
    sim::options().os_threads = os_threads;
    expect_poison_in_every_block<float>();
    expect_poison_in_every_block<__half>();
    expect_poison_in_every_block<double>();
  }
}

TEST_F(SharedMemory, IsPoisonedAfterAnotherKernelWroteIt) {
  sim::options().os_threads = 1;
  std::vector<unsigned char> found(2);
  sim::run_grid(1, 1, sim::kMaxSharedBytes, [] { write_dynamic(int(sim::kMaxSharedBytes)); });
  sim::run_grid(1, 32, sim::kMaxSharedBytes,
                [&] { find_and_leave<float>(found.data(), sim::kMaxSharedBytes); });
  EXPECT_EQ(found[0], 1);
  EXPECT_EQ(found[1], 1);
}

TEST_F(SharedMemory, IsPoisonedWhereverItIsDeclared) {
  sim::options().os_threads = 2;
  std::vector<float> found(20, 0.0f), sum(20, 0.0f);
  sim::run_grid(1, 4, 0, [&] { read_only(found.data()); });
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(found[std::size_t(i)]));
  for (int again = 0; again < 2; ++again) {
    sim::run_grid(1, 20, 0, [&] { vectors<20>(found.data()); });
    for (float value : found) EXPECT_TRUE(std::isnan(value));
  }
  sim::run_grid(20, 64, 0, [&] { nested(found.data(), sum.data()); });
  for (float value : found) EXPECT_TRUE(std::isnan(value));
  for (float value : sum) EXPECT_EQ(value, 64.0f);
}

TEST_F(SharedMemory, TheProgramsSymbolsNameItsArrays) {
  EXPECT_GE(sim::static_shared_arrays().size(), 8u);
  for (const auto& array : sim::static_shared_arrays()) EXPECT_LE(array.size(), 49152u);
}

TEST_F(SharedMemory, DynamicPartIsAligned) {
  sim::run_grid(1, 1, 16, [] {
    if (reinterpret_cast<std::uintptr_t>(dynamic_shared<char>()) % 1024)
      throw std::runtime_error("not aligned");
  });
}

TEST_F(SharedMemory, ThreadLocalsOfTheHostAreLeftAlone) {
  static thread_local int of_the_host = 42;
  sim::options().os_threads = 1;
  std::vector<float> found(4);
  sim::run_grid(2, 4, 0, [&] { read_only(found.data()); });
  EXPECT_EQ(of_the_host, 42);
}

}  // namespace
}  // namespace flashbook
