/// \file
/// Guarantees of CUDA, tested on the machine of this build: the simulator or a GPU. The expected values are
/// the same.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/barrier.h"
#include "common/ptx/convert.h"
#include "common/ptx/math.h"
#include "tests/require_gpu.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr unsigned kAll = 0xffffffff;

// Kernels. Each thread writes one or a few values to its own place.

/// Computes the maximum and the sum of a warp's values by butterflies, as in every softmax here.
__global__ void reduce(const float* in, float* maximum, float* sum) {
  float m = in[threadIdx.x], s = m;
  for (int step = 16; step > 0; step /= 2) {
    m = fmaxf(m, __shfl_xor_sync(kAll, m, step));
    s += __shfl_xor_sync(kAll, s, step);
  }
  maximum[threadIdx.x] = m;
  sum[threadIdx.x] = s;
}

/// The two halves of a warp shuffle with different masks.
__global__ void shuffle_in_halves(int* out) {
  const int lane = threadIdx.x;
  if (lane < 16)
    out[lane] = __shfl_xor_sync(0x0000ffff, lane, 15);
  else
    out[lane] = __shfl_xor_sync(0xffff0000, lane, 15);
}

/// Lane 0 passes a value to its warp through shared memory, round after round.
__global__ void hand_over_in_a_warp(int* out, int rounds) {
  __shared__ int mailbox[4];
  int sum = 0;
  const int warp = threadIdx.x / 32;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x % 32 == unsigned(round) % 32) mailbox[warp] = round * (warp + 1);
    __syncwarp();
    sum += mailbox[warp];
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}

/// Transposes a tile through static shared memory.
__global__ void transpose(const float* in, float* out) {
  __shared__ float tile[16][17];
  tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 16 + threadIdx.x];
  __syncthreads();
  out[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

/// The same through dynamic shared memory, more than a block gets by default.
__global__ void rotate(const float4* in, float4* out, int count, int by) {
  float4* tile = dynamic_shared<float4>();
  for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = in[i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tile[(i + by) % count];
}

/// Barriers do not wait for threads that have exited.
__global__ void leave_early(int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (threadIdx.x >= 64) return;
  atomicAdd(&count, 1);
  __syncthreads();
  out[threadIdx.x] = count;
}

/// A producer warp and two consumer warps: the consumers wait for full, the producer for empty.
__global__ void produce_and_consume(int* out, int rounds) {
  constexpr int kFull = 1, kEmpty = 2;
  __shared__ int tile[32];
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x < 32) {
      if (round > 0) named_barrier_sync<kEmpty, 96>();  // both consumers have read the tile
      tile[threadIdx.x] = round * 32 + int(threadIdx.x);
      named_barrier_arrive<kFull, 96>();
    } else {
      named_barrier_sync<kFull, 96>();
      sum += tile[31 - threadIdx.x % 32];
      if (round + 1 < rounds) named_barrier_arrive<kEmpty, 96>();
    }
  }
  out[threadIdx.x] = sum;
}

/// Two warps take turns, like the warpgroups of a pingpong kernel. Each records its ticket.
__global__ void take_turns(int* out, int rounds) {
  constexpr int kFirst = 3, kSecond = 4;
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = 0;
  __syncthreads();
  const bool first = threadIdx.x < 32;
  if (!first) named_barrier_arrive<kFirst, 64>();  // the second warp lets the first one begin
  for (int round = 0; round < rounds; ++round) {
    if (first)
      named_barrier_sync<kFirst, 64>();
    else
      named_barrier_sync<kSecond, 64>();
    if (threadIdx.x % 32 == 0) out[2 * round + !first] = ticket++;
    if (first)
      named_barrier_arrive<kSecond, 64>();
    else if (round + 1 < rounds)
      named_barrier_arrive<kFirst, 64>();
  }
}

__global__ void count_all(int* i, unsigned* u, unsigned long long* l, float* f) {
  atomicAdd(i, 1);
  atomicAdd(u, 2u);
  atomicAdd(l, 3ull);
  atomicAdd(f, 1.0f);
  atomicMax(i + 1, int(blockIdx.x * blockDim.x + threadIdx.x) - 50);
  atomicMax(u + 1, blockIdx.x * blockDim.x + threadIdx.x);
}

/// The last block to finish adds everything up, using a flag, a fence and an atomic ticket.
__global__ void last_block_sums(const int* in, int* partial, unsigned* ticket, int* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = in[blockIdx.x] * 2;
    __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x > 0) return;
  const volatile int* written = partial;  // written by other multiprocessors, so this one's L1 may be stale
  int sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += written[block];
  *out = sum;
}

__global__ void powers_of_two(const float* in, float* out) {
  out[threadIdx.x] = exp2_approx(in[threadIdx.x]);
}

__global__ void positions(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x +
                                  10000 * blockIdx.y + 100000 * blockIdx.z;
}

/// The active lanes of a warp form three groups. Each group's leader counts its lanes with one atomicAdd.
__global__ void count_together(unsigned* counter, unsigned* places) {  // [3], [threads]
  const unsigned lane = threadIdx.x % 32;
  unsigned* mine = counter + lane % 3;
  const unsigned active = __activemask();
  const unsigned peers = __match_any_sync(active, lane % 3);
  const int leader = __ffs(int(peers)) - 1;
  unsigned first = 0;
  if (int(lane) == leader) first = atomicAdd(mine, unsigned(__popc(int(peers))));
  first = __shfl_sync(peers, first, leader);
  places[threadIdx.x] = first + unsigned(__popc(int(peers & ((1u << lane) - 1))));
}

__global__ void nothing() {}

using BothMachines = MachineTest;

TEST_F(BothMachines, WarpsReduceByButterflies) {
  std::vector<float> in(64);
  for (int i = 0; i < 64; ++i) in[std::size_t(i)] = float((i * 37) % 64) - 20;
  Values<float> values(in), maximum(64), sum(64);
  device::launch(reduce, 1, 64, 0, nullptr, values.data(), maximum.data(), sum.data());
  for (int warp = 0; warp < 2; ++warp) {
    float m = -1000, s = 0;
    for (int lane = 0; lane < 32; ++lane) {
      m = std::max(m, in[std::size_t(warp * 32 + lane)]);
      s += in[std::size_t(warp * 32 + lane)];
    }
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(maximum.get()[std::size_t(warp * 32 + lane)], m);
      EXPECT_EQ(sum.get()[std::size_t(warp * 32 + lane)], s);
    }
  }
}

TEST_F(BothMachines, HalvesOfAWarpShuffleAmongThemselves) {
  Values<int> out(32);
  device::launch(shuffle_in_halves, 1, 32, 0, nullptr, out.data());
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(out.get()[std::size_t(lane)], lane ^ 15);
}

TEST_F(BothMachines, SyncwarpOrdersSharedMemory) {
  Values<int> out(128);
  device::launch(hand_over_in_a_warp, 1, 128, 0, nullptr, out.data(), 100);
  for (int thread = 0; thread < 128; ++thread)
    EXPECT_EQ(out.get()[std::size_t(thread)], 4950 * (thread / 32 + 1)) << thread;
}

TEST_F(BothMachines, StaticSharedMemory) {
  std::vector<float> in(256), expected(256);
  for (std::size_t row = 0; row < 16; ++row)
    for (std::size_t column = 0; column < 16; ++column)
      in[row * 16 + column] = expected[column * 16 + row] = float(row * 100 + column);
  Values<float> values(in), out(256);
  device::launch(transpose, 1, dim3(16, 16), 0, nullptr, values.data(), out.data());
  EXPECT_EQ(out.get(), expected);
}

TEST_F(BothMachines, DynamicSharedMemoryUpToTheLimit) {
  for (int bytes : {16, 48 * 1024, 48 * 1024 + 16, 160 * 1024}) {
    const int count = bytes / 16;
    std::vector<float> in(std::size_t(bytes / 4)), expected(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i);
    for (std::size_t i = 0; i < in.size(); ++i) expected[i] = in[(i + 20) % in.size()];
    Values<float> values(in), out(in.size());
    device::launch(rotate, 1, 256, std::size_t(bytes), nullptr,
                   reinterpret_cast<const float4*>(values.data()), reinterpret_cast<float4*>(out.data()),
                   count, 5);
    EXPECT_EQ(out.get(), expected) << bytes;
  }
}

TEST_F(BothMachines, ExitedThreadsAreNotWaitedFor) {
  Values<int> out(64);
  device::launch(leave_early, 1, 128, 0, nullptr, out.data());
  EXPECT_EQ(out.get(), std::vector<int>(64, 64));
}

TEST_F(BothMachines, NamedBarriersHandATileOver) {
  constexpr int kRounds = 50;
  Values<int> out(96);
  device::launch(produce_and_consume, 1, 96, 0, nullptr, out.data(), kRounds);
  const auto got = out.get();
  for (int thread = 32; thread < 96; ++thread)
    EXPECT_EQ(got[std::size_t(thread)], 32 * (kRounds * (kRounds - 1) / 2) + kRounds * (31 - thread % 32))
        << thread;
}

TEST_F(BothMachines, NamedBarriersLetWarpsTakeTurns) {
  constexpr int kRounds = 20;
  Values<int> out(2 * kRounds);
  device::launch(take_turns, 1, 64, 0, nullptr, out.data(), kRounds);
  for (int turn = 0; turn < 2 * kRounds; ++turn) EXPECT_EQ(out.get()[std::size_t(turn)], turn);
}

TEST_F(BothMachines, AtomicsLoseNothing) {
  constexpr unsigned kBlocks = 100, kThreads = 96;
  Values<int> i(std::vector<int>{0, -1000});
  Values<unsigned> u(std::vector<unsigned>{0, 0});
  Values<unsigned long long> l(std::vector<unsigned long long>{1ull << 40});
  Values<float> f(std::vector<float>{0});
  device::launch(count_all, kBlocks, kThreads, 0, nullptr, i.data(), u.data(), l.data(), f.data());
  EXPECT_EQ(i.get(), (std::vector<int>{9600, 9599 - 50}));
  EXPECT_EQ(u.get(), (std::vector<unsigned>{19200, 9599}));
  EXPECT_EQ(l.get()[0], (1ull << 40) + 28800);
  EXPECT_EQ(f.get()[0], 9600.0f);
}

TEST_F(BothMachines, TheLastBlockSeesWhatTheOthersWrote) {
  std::vector<int> in(200);
  int expected = 0;
  for (int i = 0; i < 200; ++i) expected += 2 * (in[std::size_t(i)] = i * i);
  Values<int> values(in), partial(200), out(1);
  Values<unsigned> ticket(std::vector<unsigned>{0});
  device::launch(last_block_sums, 200, 64, 0, nullptr, values.data(), partial.data(), ticket.data(),
                 out.data());
  EXPECT_EQ(out.get()[0], expected);
}

TEST_F(BothMachines, Exp2IsGoodToAFewUnitsInTheLastPlace) {
  std::vector<float> in(256);
  for (int i = 0; i < 256; ++i) in[std::size_t(i)] = float(i) * -0.37f;
  in[255] = -std::numeric_limits<float>::infinity();
  Values<float> values(in), out(256);
  device::launch(powers_of_two, 1, 256, 0, nullptr, values.data(), out.data());
  const auto got = out.get();
  for (std::size_t i = 0; i < 256; ++i)
    EXPECT_NEAR(got[i], std::exp2(in[i]), std::exp2(in[i]) * 0x1p-21f) << in[i];
}

TEST_F(BothMachines, LanesThatAreActiveTogetherCountTogether) {
  const Values<unsigned> counter(std::vector<unsigned>(3)), places(96);
  device::launch(count_together, 1, 96, 0, nullptr, counter.data(), places.data());
  EXPECT_EQ(counter.get(), (std::vector<unsigned>{33, 33, 30}));
  auto seen = places.get();
  std::sort(seen.begin(), seen.end());
  for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(seen[i], i < 90 ? i / 3 : 30 + (i - 90) / 2);
}

TEST_F(BothMachines, EveryThreadKnowsItsPlace) {
  Values<unsigned> out(2 * 3 * 4 * 5 * 6 * 7);
  device::launch(positions, dim3(2, 3, 4), dim3(5, 6, 7), 0, nullptr, out.data());
  const auto got = out.get();
  std::size_t i = 0;
  for (unsigned bz = 0; bz < 4; ++bz)
    for (unsigned by = 0; by < 3; ++by)
      for (unsigned bx = 0; bx < 2; ++bx)
        for (unsigned tz = 0; tz < 7; ++tz)
          for (unsigned ty = 0; ty < 6; ++ty)
            for (unsigned tx = 0; tx < 5; ++tx)
              ASSERT_EQ(got[i++], tx + 10 * ty + 100 * tz + 1000 * bx + 10000 * by + 100000 * bz);
}

__global__ void has_32_kb(float* out) {
  __shared__ float numbers[8192];
  numbers[threadIdx.x] = 1;
  out[threadIdx.x] = numbers[threadIdx.x];
}
#ifndef __clang__  // clang's kernels do not tell the simulator their bounds
__global__ void __launch_bounds__(128) has_bounds(float* out) { out[threadIdx.x] = 1; }
#endif

TEST_F(BothMachines, LaunchesBeyondTheLimitsAreRefused) {
  const auto refused = [](dim3 grid, dim3 block, std::size_t bytes) {
    EXPECT_THROW(device::launch(nothing, grid, block, bytes, nullptr), device::DeviceError);
    device::launch(nothing, 1, 32, 0, nullptr);  // the next launch is unaffected
    device::synchronize();
  };
  refused(1, 1025, 0);
  refused(1, dim3(1, 1, 65), 0);
  refused(dim3(1, 65536), 1, 0);
  refused(dim3(1, 1, 65536), 1, 0);
  refused(0, 32, 0);
  refused(1, 0, 0);
  refused(1, 32, 228 * 1024);
  const Values<float> out(256);
  EXPECT_THROW(device::launch(has_32_kb, 1, 32, 220 * 1024, nullptr, out.data()), device::DeviceError);
#ifndef __clang__
  EXPECT_THROW(device::launch(has_bounds, 1, 256, 0, nullptr, out.data()), device::DeviceError);
#endif
}

}  // namespace
}  // namespace flashbook
