#include "common/device/launch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/simulator/launch_bounds.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

__global__ void nothing() {}

/// Writes each thread's position, as the thread sees it.
__global__ void write_position(unsigned* positions) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  positions[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
}

/// Four warps that never wait for each other: how many of 16 rounds the others have done when each one
/// finishes.
__global__ void race_to_the_end(int* rounds,     // [4], rounds done so far
                                int* at_the_end  // [4, 4]
) {
  const int warp = int(threadIdx.x) / 32;
  for (int round = 0; round < 16; ++round) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ++rounds[warp];
  }
  if (threadIdx.x % 32 == 0) std::copy(rounds, rounds + 4, at_the_end + 4 * warp);
}

__global__ void fail_in_block(unsigned block) {
  __syncthreads();
  if (blockIdx.x >= block && threadIdx.x == 3) throw std::runtime_error("planted");
  __syncthreads();
}

__global__ void sum_of_arguments(const float* a, int b, float c, float* out) {
  if (threadIdx.x == 0) *out = *a + float(b) + c;
}

using sim::error_of;
using sim::run_grid;
using Launch = sim::SimulatorTest;

TEST_F(Launch, EveryThreadRunsOnceAtItsPlace) {
  for (int os_threads : {1, 4}) {
    sim::options().os_threads = os_threads;
    const dim3 grid(3, 4, 5), block(7, 3, 2);
    std::vector<unsigned> positions(60 * 42);
    run_grid(grid, block, 0, [&] { write_position(positions.data()); });
    EXPECT_EQ(positions, std::vector<unsigned>(positions.size(), 1));
  }
}

TEST_F(Launch, WhatTheMachineRefusesIsRefusedWithTheReason) {
  EXPECT_EQ(error_of(1, 1025, nothing), "a block of (1025,1,1) threads: a block has at most 1024");
  EXPECT_EQ(error_of(1, dim3(32, 33), nothing), "a block of (32,33,1) threads: a block has at most 1024");
  EXPECT_EQ(error_of(1, dim3(65536, 65536, 65536), nothing),
            "a block of (65536,65536,65536) threads: a block has at most 1024");
  EXPECT_EQ(error_of(1, dim3(1, 1, 65), nothing), "a block of (1,1,65) threads: z is at most 64");
  EXPECT_EQ(error_of(dim3(1, 65536), 1, nothing), "a grid of (1,65536,1) blocks: y and z are at most 65535");
  EXPECT_EQ(error_of(dim3(1, 1, 65536), 1, nothing),
            "a grid of (1,1,65536) blocks: y and z are at most 65535");
  EXPECT_EQ(error_of(2147483648u, 1, nothing), "a grid of (2147483648,1,1) blocks: x is at most 2147483647");
  EXPECT_EQ(error_of(dim3(2, 0), 32, nothing),
            "grid (2,0,1) of blocks (32,1,1): every dimension must be at least 1");
  EXPECT_EQ(error_of(1, 0, nothing), "grid (1,1,1) of blocks (0,1,1): every dimension must be at least 1");
  EXPECT_EQ(error_of(1, 32, 232449, nothing),
            "232449 bytes of dynamic shared memory: a block has at most 232448 (227 KB)");
  EXPECT_EQ(error_of(1, 1024, 232448, nothing), "");
  EXPECT_EQ(error_of(dim3(1, 65535), dim3(1, 1, 64), nothing), "");
}

TEST_F(Launch, ExceptionsOfAKernelSurface) {
  for (int os_threads : {1, 4}) {
    sim::options().os_threads = os_threads;
    EXPECT_EQ(error_of(100, 64, [] { fail_in_block(17); }),
              "the kernel threw: planted\n  in block (17,0,0), thread (3,0,0), warp 0, lane 3");
    EXPECT_NE(error_of(1, 1, [] { throw 42; }).find("not a std::exception"), std::string::npos);
  }
}

TEST_F(Launch, AGoodLaunchFollowsAFailedOne) {
  for (int os_threads : {1, 3}) {
    sim::options().os_threads = os_threads;
    for (int again = 0; again < 20; ++again) {
      EXPECT_NE(error_of(10, 256, [] { fail_in_block(3); }), "");
      EXPECT_NE(error_of(10, 96,
                         [] {
                           if (threadIdx.x < 32) sim::barrier_sync("sync", 2, 64, {});
                         })
                    .find("deadlock"),
                std::string::npos);
      std::vector<unsigned> positions(10 * 256);
      EXPECT_EQ(error_of(10, 256, [&] { write_position(positions.data()); }), "");
      EXPECT_EQ(positions, std::vector<unsigned>(positions.size(), 1));
    }
  }
}

/// Some races only show with one warp far ahead of all others, or far behind.
TEST_F(Launch, SomeSeedsLetAWarpRunAheadOrFallBehind) {
  for (const int warp : {0, 3}) {
    bool ahead = false, behind = false;
    for (uint64_t seed = 1; seed <= 16; ++seed) {
      sim::options().seed = seed;
      std::vector<int> rounds(4), at_the_end(16);
      run_grid(1, 128, 0, [&] { race_to_the_end(rounds.data(), at_the_end.data()); });
      bool others_begin = true, others_are_through = true;
      for (int other = 0; other < 4; ++other)
        if (other != warp) {
          others_begin &= at_the_end[std::size_t(4 * warp + other)] < 2;
          others_are_through &= at_the_end[std::size_t(4 * other + warp)] < 2;
        }
      ahead |= others_begin;
      behind |= others_are_through;
    }
    EXPECT_TRUE(ahead) << warp;
    EXPECT_TRUE(behind) << warp;
  }
}

TEST_F(Launch, AKernelCannotLaunchAKernel) {
  EXPECT_NE(error_of(1, 1, [] { run_grid(1, 1, 0, nothing); }).find("a kernel launches a kernel"),
            std::string::npos);
}

TEST_F(Launch, DeviceLaunchConvertsArgumentsAndErrors) {
  const Values<float> a(std::vector<float>{1.5f}), out(1);
  device::launch(sum_of_arguments, 1, 32, 0, nullptr, a.data(), 2u, 3, out.data());
  EXPECT_EQ(out.get()[0], 6.5f);
  try {
    device::launch(nothing, dim3(2, 3), 2048, 64, nullptr);
    FAIL() << "2048 threads were launched";
  } catch (const device::DeviceError& error) {
    EXPECT_STREQ(
        error.what(),
        "launch <<<(2,3,1), (2048,1,1), 64>>>: a block of (2048,1,1) threads: a block has at most 1024");
  }
}

#ifndef __clang__  // clang's kernels do not tell the simulator their bounds
#endif

}  // namespace
}  // namespace flashbook
