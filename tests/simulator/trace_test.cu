/// \file
/// The traced mode: access patterns with known counts, accesses that must be refused, and races. This file is
/// instrumented (flashbook_traced).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/ptx/atomic.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/wmma.h"
#include "common/simulator/trace/trace.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

using sim::Access;
using sim::LineCounts;

// ---- patterns: one request per warp of a block

__global__ void load_at_stride(const float* in, float* out, int stride, int shift) {
  const int i = threadIdx.x;
  const float value = in[i * stride + shift];
  if (value > 1e30f) out[i] = value;  // never true: only the load counts
}

__global__ void store_16_bytes(float4* out) { out[threadIdx.x] = make_float4(1, 2, 3, 4); }

__global__ void load_16_bytes(const float4* in, float* out) {
  const float4 value = in[threadIdx.x];
  if (value.x > 1e30f) out[threadIdx.x] = value.y + value.z + value.w;
}

/// Even lanes load in one branch, odd lanes in the other.
__global__ void load_in_two_branches(const float* in, float* out) {
  const int i = threadIdx.x;
  float value;
  if (i % 2 == 0)
    value = in[i];
  else
    value = float(reinterpret_cast<const int*>(in)[i + 64]);
  if (value > 1e30f) out[i] = value;
}

/// Lane i runs i + 1 rounds.
__global__ void loop_of_own_length(const float* in, float* out) {
  float sum = 0;
  for (int j = 0; j <= int(threadIdx.x); ++j) sum += in[32 * j + threadIdx.x];
  if (sum > 1e30f) out[threadIdx.x] = sum;
}

__global__ void load_shared_16_bytes(float* out, int stride) {
  float4* tile = dynamic_shared<float4>();
  const float4 value = tile[threadIdx.x * stride];
  if (value.x > 2) out[0] = value.y + value.z + value.w;
}

__global__ void load_a_static_column(float* out) {
  __shared__ float tile[32][32];
  const float value = tile[threadIdx.x][0];
  if (value > 2) out[0] = value;
}

/// Rows of 32 floats, of which each thread copies this many bytes.
__global__ void copy_by_memcpy(const float* in, float* out, std::size_t bytes) {
  std::memcpy(out + 32 * threadIdx.x, in + 32 * threadIdx.x, bytes);
}
__global__ void copy_32_bytes_by_memcpy(const float* in, float* out) {
  std::memcpy(out + 32 * threadIdx.x, in + 32 * threadIdx.x, 32);
}
__global__ void copy_by_copy_n(const float* in, float* out) {
  std::copy_n(in + 32 * threadIdx.x, 8, out + 32 * threadIdx.x);
}
__global__ void clear_by_memset(float* out, std::size_t bytes) {
  std::memset(out + 32 * threadIdx.x, 0, bytes);
}

__global__ void count_in_one_place(int* counter) { atomicAdd(counter, 1); }

class Trace : public sim::SimulatorTest {
 protected:
  Trace() { sim::take_trace(); }

  /// Runs `body` in one block and keeps its counts. It may read unwritten shared memory.
  void run(int threads, std::size_t shared_bytes, const std::function<void()>& body) {
    const std::string error = sim::error_of(1, unsigned(threads), shared_bytes, body);
    EXPECT_TRUE(error.empty() || error.starts_with("uninitialised")) << error;
    launch_ = sim::take_trace().back();
  }

  /// Returns the counts of the only line with this kind of access.
  LineCounts only(bool shared, Access access) const {
    LineCounts found{};
    int count = 0;
    for (const LineCounts& line : launch_.lines)
      if (line.shared == shared && line.access == access) found = line, ++count;
    EXPECT_EQ(count, 1);
    return found;
  }

  void expect(bool shared, Access access, int bytes, uint64_t requests, uint64_t units,
              uint64_t ideal) const {
    const LineCounts line = only(shared, access);
    EXPECT_EQ(line.bytes, bytes);
    EXPECT_EQ(line.counts.requests, requests);
    EXPECT_EQ(line.counts.units, units);
    EXPECT_EQ(line.counts.ideal, ideal);
  }

  Values<float> in_{std::vector<float>(4096, 1.0f)}, out_{4096};
  sim::LaunchTrace launch_;
};

TEST_F(Trace, BlocksThatAskForNothing) {
  const std::string error = sim::error_of(4, 32, 0, [&] {
    if (blockIdx.x == 1) load_at_stride(in_.data(), out_.data(), 32, 0);
    if (blockIdx.x == 2) load_at_stride(in_.data(), out_.data(), 1, 0);
  });
  EXPECT_EQ(error, "");
  const sim::LaunchTrace launch = sim::take_trace().back();
  EXPECT_EQ(launch.busy_blocks, 2u);
  EXPECT_EQ(launch.bytes_requested_read, (32u + 4u) * 32);
}

TEST_F(Trace, ARowThatBeginsInsideASectorTakesOneMore) {
  run(32, 0, [&] { load_at_stride(in_.data(), out_.data(), 1, 3); });
  expect(false, Access::load, 4, 1, 5, 4);
}

TEST_F(Trace, SixteenBytesALaneAreOneAccess) {
  run(32, 0, [&] { store_16_bytes(reinterpret_cast<float4*>(out_.data())); });
  expect(false, Access::store, 16, 1, 16, 16);
  EXPECT_EQ(launch_.bytes_distinct_written, 512u);
  run(32, 0, [&] { load_16_bytes(reinterpret_cast<const float4*>(in_.data()), out_.data()); });
  expect(false, Access::load, 16, 1, 16, 16);
}

TEST_F(Trace, WhatIsMovedAsAWholeCounts) {
  for (const int how : {0, 1, 2}) {
    run(32, 0, [&] {
      if (how == 0) copy_by_memcpy(in_.data(), out_.data(), 32);
      if (how == 1) copy_32_bytes_by_memcpy(in_.data(), out_.data());
      if (how == 2) copy_by_copy_n(in_.data(), out_.data());
    });
    for (const Access access : {Access::load, Access::store}) expect(false, access, 16, 2, 2 * 32, 2 * 16);
  }
  run(32, 0, [&] { clear_by_memset(out_.data(), 32); });
  expect(false, Access::store, 16, 2, 2 * 32, 2 * 16);
  EXPECT_EQ(launch_.bytes_distinct_written, 32u * 32);
  run(32, 0, [&] { copy_by_memcpy(in_.data(), out_.data(), 0); });
  EXPECT_TRUE(launch_.lines.empty());
}

TEST_F(Trace, BranchesAreRequestsOfTheirOwn) {
  run(32, 0, [&] { load_in_two_branches(in_.data(), out_.data()); });
  ASSERT_EQ(launch_.lines.size(), 2u);
  for (const LineCounts& line : launch_.lines) {
    EXPECT_EQ(line.counts.requests, 1u);
    EXPECT_EQ(line.counts.lanes, 16u);
    EXPECT_EQ(line.counts.units, 4u);
    EXPECT_EQ(line.counts.ideal, 2u);
  }
}

TEST_F(Trace, LoopsOfDifferentLengthsAreLinedUpRoundByRound) {
  run(32, 0, [&] { loop_of_own_length(in_.data(), out_.data()); });
  const LineCounts line = only(false, Access::load);
  EXPECT_EQ(line.counts.requests, 32u);
  EXPECT_EQ(line.counts.lanes, 32u * 33 / 2);
  EXPECT_EQ(line.counts.units, 8u * (4 + 3 + 2 + 1));
}

TEST_F(Trace, SixteenBytesALaneAreServedByQuarters) {
  run(32, 32 * 16, [&] { load_shared_16_bytes(out_.data(), 1); });
  expect(true, Access::load, 16, 1, 4, 4);
  run(32, 32 * 8 * 16, [&] { load_shared_16_bytes(out_.data(), 8); });
  expect(true, Access::load, 16, 1, 32, 4);
}

TEST_F(Trace, StaticArraysAreSharedMemoryToo) {
  run(32, 0, [&] { load_a_static_column(out_.data()); });
  expect(true, Access::load, 4, 1, 32, 1);
}

TEST_F(Trace, AtomicsHappenAndCount) {
  Values<int> counter(std::vector<int>{0});
  sim::run_grid(4, 64, 0, [&] { count_in_one_place(counter.data()); });
  EXPECT_EQ(counter.get()[0], 256);
  launch_ = sim::take_trace().back();
  expect(false, Access::atomic, 4, 8, 8, 8);
  EXPECT_EQ(launch_.bytes_distinct_written, 32u);
}

// ---- races

constexpr int kStoreLine = __LINE__ + 3;
__global__ void reverse(float* out, bool before_load, bool before_store) {
  __shared__ float tile[64];
  tile[threadIdx.x] = threadIdx.x;
  if (before_load) __syncthreads();
  const float value = tile[63 - threadIdx.x];
  if (before_store) __syncthreads();
  tile[threadIdx.x] = value;
  out[threadIdx.x] = tile[threadIdx.x];
}

/// Lane 0 reads what lane 31 wrote.

__global__ void neighbouring_bytes() {
  auto* bytes = dynamic_shared<unsigned char>();
  bytes[threadIdx.x] = 1;
}

__global__ void same_bytes_by_two_warps() { dynamic_shared<unsigned char>()[threadIdx.x % 32] = threadIdx.x; }
/// Each thread's own byte, before and after its neighbours access theirs.
__global__ void own_byte_twice(unsigned char* out) {
  auto* bytes = dynamic_shared<unsigned char>();
  bytes[threadIdx.x] = out[threadIdx.x] = 1;
  const int neighbour = __shfl_xor_sync(0xffffffffu, int(threadIdx.x), 1);
  bytes[threadIdx.x] += neighbour;
  out[threadIdx.x] += bytes[threadIdx.x];
}

__global__ void everyone_writes(float* out, bool same) { out[same ? 0 : blockIdx.x] = float(blockIdx.x); }

/// Eight bytes per block, or some bytes of the next block.
__global__ void everyone_writes_bytes(unsigned char* out, int count) {
  for (int i = 0; i < count; ++i) out[8 * blockIdx.x + i] = blockIdx.x;
}

__global__ void raise_one_flag(int* flag) { *flag = 1; }

/// A counter provides the number of a block.
__global__ void count_then_write(float* out, int* counter, int reach) {
  const int block = atomicAdd(counter, 1);
  for (int i = 0; i < reach; ++i) out[block + i] = float(block);
}

/// A scan: each block waits for the previous one through a volatile flag.
__global__ void chain(volatile int* flags, volatile int* sums) {
  const unsigned block = blockIdx.x;
  if (block > 0)
    while (flags[block - 1] == 0) {
    }
  sums[block] = 1 + (block > 0 ? sums[block - 1] : 0);
  __threadfence();
  flags[block] = 1;
}

__global__ void hand_over_in_shared(float* out, bool fence) {
  __shared__ volatile int flag;
  __shared__ float value;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 32) {
    value = 5;
    if (fence) __threadfence_block();
    flag = 1;
  }
  if (threadIdx.x == 0) {
    while (flag == 0) {
    }
    out[0] = value;
  }
}

/// Sums within warps, as written when lanes ran in lock-step; `ordered`: as required since Volta.
__global__ void sum_of_warps(const float* in, float* out, int rows, bool ordered) {
  __shared__ volatile float part[64];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int row = 0; row < rows; ++row) {
    part[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    for (int half = 16; half > 0; half /= 2) {
      const float sum = part[threadIdx.x] + (lane < half ? part[threadIdx.x + half] : 0.0f);
      if (ordered) __syncwarp();
      part[threadIdx.x] = sum;
      if (ordered) __syncwarp();
    }
    if (lane == 0) out[warp] = part[threadIdx.x];
    __syncwarp();
  }
}
/// A lane waits for another lane of its warp.
__global__ void hand_over_in_a_warp(float* out) {
  __shared__ volatile int flag;
  __shared__ float value;
  if (threadIdx.x == 0) flag = 0;
  __syncwarp();
  if (threadIdx.x == 5) {
    value = 5;
    __threadfence_block();
    flag = 1;
  }
  if (threadIdx.x == 0) {
    while (flag == 0) {
    }
    out[0] = value;
  }
}

/// Block 0 fills a ring of two places, block 1 empties it; `ahead`: how many places too far block 0 runs.
__global__ void ring_of_blocks(float* places, int* filled, int* emptied, float* out, int ahead) {
  constexpr int kPlaces = 2, kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    if (blockIdx.x == 0) {
      while (load_acquire(emptied) < round + 1 - kPlaces - ahead) {
      }
      places[round % kPlaces] = float(round + 1);
      store_release(filled, round + 1);
    } else {
      while (load_acquire(filled) < round + 1) {
      }
      out[round] = places[round % kPlaces];
      store_release(emptied, round + 1);
    }
  }
}
/// In each round, block 1 waits for block 0's same round if it `advances`, otherwise only for the first one.
__global__ void rounds_of_blocks(float* values, int* rounds, float* out, bool advances) {
  for (int round = 0; round < 3; ++round) {
    if (blockIdx.x == 0) {
      values[round] = float(round + 1);
      __threadfence();
      atomicAdd(rounds, 1);
    } else {
      while (atomicAdd(rounds, 0) < (advances ? round + 1 : 1)) {
      }
      __threadfence();
      out[round] = values[round];
    }
  }
}
/// Block 0 clears the sums to which all blocks add; `ordered`: they first wait until it has.
__global__ void clear_and_add(float* sums, int* cleared, bool ordered) {
  if (blockIdx.x == 0) {
    sums[threadIdx.x] = 0;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) store_release(cleared, 1);
  } else if (ordered) {
    if (threadIdx.x == 0)
      while (load_acquire(cleared) == 0) {
      }
    __syncthreads();
  }
  atomicAdd(&sums[threadIdx.x], 1.0f);
}
/// Block 2 learns from block 1 of block 0's last store, and must read that value.
__global__ void hear_by_a_third(int* first, int* second, float* out) {
  if (blockIdx.x == 0) {
    for (int i = 1; i <= 3; ++i) store_release(first, i);
  } else if (blockIdx.x == 1) {
    while (load_acquire(first) < 3) {
    }
    store_release(second, 1);
  } else {
    while (load_acquire(second) == 0) {
    }
    out[0] = float(load_acquire(first));
  }
}

__global__ void read_the_next_block(float* values) {
  const float next = values[blockIdx.x + 1];
  values[blockIdx.x] = next;
}

class TraceRaces : public Trace {};

TEST_F(TraceRaces, AMissingBarrierBeforeTheLoad) {
  const std::string error = sim::error_of(1, 64, [&] { reverse(out_.data(), false, true); });
  EXPECT_NE(error.find("data race in block 0 on a __shared__ array"), std::string::npos) << error;
  EXPECT_NE(error.find("wrote at " + sim::line(kStoreLine)), std::string::npos) << error;
  EXPECT_NE(error.find("read at " + sim::line(kStoreLine + 2)), std::string::npos) << error;
  EXPECT_NE(error.find("missing barrier"), std::string::npos) << error;
}

TEST_F(TraceRaces, BothBarriersAreEnough) {
  for (const uint64_t seed : {0, 1, 2}) {
    sim::options().seed = seed;
    EXPECT_EQ(sim::error_of(2, 64, [&] { reverse(out_.data() + 64 * blockIdx.x, true, true); }), "");
  }
}

TEST_F(TraceRaces, NeighboursDoNotRace) {
  EXPECT_EQ(sim::error_of(1, 64, 64, [] { neighbouring_bytes(); }), "");
}

TEST_F(TraceRaces, OnBytes) {
  const std::string error = sim::error_of(1, 64, 64, [] { same_bytes_by_two_warps(); });
  EXPECT_NE(error.find("data race in block 0 on dynamic shared memory + 0"), std::string::npos) << error;
  auto* bytes = reinterpret_cast<unsigned char*>(out_.data());
  EXPECT_EQ(sim::error_of(1, 64, 64, [&] { own_byte_twice(bytes); }), "");
}

TEST_F(TraceRaces, BetweenBlocks) {
  EXPECT_EQ(sim::error_of(4, 1, [&] { everyone_writes(out_.data(), false); }), "");
  const std::string error = sim::error_of(4, 1, [&] { everyone_writes(out_.data(), true); });
  EXPECT_NE(error.find("data race between blocks on global memory"), std::string::npos) << error;
  EXPECT_NE(sim::error_of(4, 1, [&] { read_the_next_block(in_.data()); }), "");
  Values<int> counter(std::vector<int>{0});
  EXPECT_EQ(sim::error_of(4, 1, [&] { count_in_one_place(counter.data()); }), "");
  EXPECT_EQ(sim::error_of(4, 1, [&] { raise_one_flag(counter.data()); }), "") << "all store the same";
}

TEST_F(TraceRaces, BetweenBlocksOnBytes) {
  auto* bytes = reinterpret_cast<unsigned char*>(out_.data());
  EXPECT_EQ(sim::error_of(4, 1, [&] { everyone_writes_bytes(bytes, 8); }), "");
  EXPECT_NE(sim::error_of(4, 1, [&] { everyone_writes_bytes(bytes, 9); }).find("between blocks"),
            std::string::npos);
}

TEST_F(TraceRaces, BetweenBlocksThatHaveCounted) {
  Values<int> counter(std::vector<int>{0, 0});
  EXPECT_EQ(sim::error_of(4, 1, [&] { count_then_write(out_.data(), counter.data(), 1); }), "");
  EXPECT_NE(sim::error_of(4, 1, [&] { count_then_write(out_.data(), counter.data() + 1, 2); })
                .find("between blocks"),
            std::string::npos);
}

/// Blocks that run one after another on one OS thread, and concurrently on several.
TEST_F(TraceRaces, OrdersOfBlocksThatDoNotHappenHere) {
  const auto error = [&](auto&& kernel, unsigned blocks, unsigned threads) {
    const Values<int> flags(std::vector<int>{0, 0});
    return sim::error_of(blocks, threads, [&] { kernel(flags.data(), flags.data() + 1); });
  };
  for (const int os_threads : {1, 4}) {
    sim::options().os_threads = os_threads;
    const Values<float> values(std::vector<float>(64, 0.0f));
    for (const int ahead : {0, 1}) {
      const std::string ring =
          error([&](int* a, int* b) { ring_of_blocks(values.data(), a, b, out_.data(), ahead); }, 2, 1);
      EXPECT_EQ(ring.find("data race between blocks on global memory") == 0, ahead == 1) << ring;
      if (ahead == 0) {
        EXPECT_EQ(out_.get()[5], 6);
      }
    }
    for (const bool right : {false, true}) {
      const std::string rounds =
          error([&](int* a, int*) { rounds_of_blocks(values.data(), a, out_.data(), right); }, 2, 1);
      EXPECT_EQ(rounds.empty(), right) << rounds;
      const std::string sums = error([&](int* a, int*) { clear_and_add(values.data(), a, right); }, 4, 32);
      EXPECT_EQ(sums.empty(), right) << sums;
    }
    EXPECT_EQ(error([&](int* a, int* b) { hear_by_a_third(a, b, out_.data()); }, 3, 1), "");
    EXPECT_EQ(out_.get()[0], 3);
  }
}

TEST_F(TraceRaces, VolatileSumsOfLanesThatDoNotGoInStep) {
  for (const uint64_t seed : {0, 1, 2}) {
    sim::options().seed = seed;
    for (const int rows : {1, 3}) {
      EXPECT_EQ(sim::error_of(1, 64, [&] { sum_of_warps(in_.data(), out_.data(), rows, true); }), "");
      EXPECT_EQ(out_.get()[0], 32);
      const std::string error =
          sim::error_of(1, 64, [&] { sum_of_warps(in_.data(), out_.data(), rows, false); });
      EXPECT_NE(error.find("data race in block 0 on a __shared__ array"), std::string::npos) << error;
      EXPECT_NE(error.find("look for a missing __syncwarp"), std::string::npos) << error;
    }
    EXPECT_EQ(sim::error_of(1, 32, [&] { hand_over_in_a_warp(out_.data()); }), "");
    EXPECT_EQ(out_.get()[0], 5);
  }
}

TEST_F(TraceRaces, VolatileFlags) {
  Values<int> values(std::vector<int>(16, 0));
  EXPECT_EQ(sim::error_of(8, 1, [&] { chain(values.data(), values.data() + 8); }), "");
  EXPECT_EQ(values.get()[15], 8);
  EXPECT_EQ(sim::error_of(1, 64, [&] { hand_over_in_shared(out_.data(), true); }), "");
  sim::options().seed = 3;  // the flag is set between two polls
  EXPECT_EQ(sim::error_of(1, 64, [&] { hand_over_in_shared(out_.data(), true); }), "");
  EXPECT_NE(sim::error_of(1, 64, [&] { hand_over_in_shared(out_.data(), false); }), "");
}

}  // namespace
}  // namespace flashbook
