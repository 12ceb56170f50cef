/// \file
/// The traced mode: data handed over through flags, round after round and launch after launch. This file is
/// instrumented (flashbook_traced).
#include <string>
#include <vector>

#include "common/device/launch.h"
#include "common/ptx/atomic.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

using sim::expect_in;

constexpr int kRounds = 4, kThreads = 128;

/// How a block announces each chunk to another one.
enum class Order {
  fence_barrier_flag,
  barrier_fence_flag,
  fence_before_the_store,  // wrong
  no_fence                 // wrong
};

constexpr int kStoreLine = __LINE__ + 6;
/// Block 0 writes chunk after chunk; its threads have reached the next fence when thread 0 sets the flag.
__global__ void chunks(float* data, int* flags, float* out, Order order) {
  for (int chunk = 0; chunk < kRounds; ++chunk) {
    if (blockIdx.x == 0) {
      if (order == Order::fence_before_the_store) __threadfence();
      data[chunk * kThreads + threadIdx.x] = 1;
      if (order == Order::fence_barrier_flag) __threadfence();
      __syncthreads();
      if (threadIdx.x != 0) continue;
      if (order == Order::barrier_fence_flag) __threadfence();
      atomicExch(&flags[chunk], 1);
    } else {
      if (threadIdx.x == 0)
        while (atomicAdd(&flags[chunk], 0) == 0) {
        }
      __syncthreads();
      out[threadIdx.x] = data[chunk * kThreads + (threadIdx.x + 33) % kThreads];
    }
  }
}

/// The same between warps in shared memory, with a fence per lane. `shift`: the fences precede the stores.
__global__ void chunks_of_a_warp(float* out, bool shift) {
  __shared__ float data[32];
  __shared__ volatile int ready, taken;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ready = 0;
    taken = 0;
  }
  __syncthreads();
  for (int round = 1; round <= kRounds; ++round) {
    if (threadIdx.x < 32) {
      if (lane == 0)
        while (taken != round - 1) {
        }
      __threadfence_block();
      __syncwarp();
      data[lane] = float(round);
      if (!shift) __threadfence_block();
      __syncwarp();
      if (lane == 0) ready = round;
    } else {
      if (lane == 0) {
        while (ready != round) {
        }
        __threadfence_block();
      }
      __syncwarp();
      out[lane] = data[(lane + 1) % 32];
      __syncwarp();
      if (lane != 0) continue;
      __threadfence_block();
      taken = round;
    }
  }
}

/// How a flag is set and read.
enum class By { release, atomics, volatile_words };

template <By kBy>
__device__ void set(int* flag, int value) {
  if constexpr (kBy == By::release) {
    store_release(flag, value);
  } else {
    __threadfence();
    if constexpr (kBy == By::atomics)
      atomicExch(flag, value);
    else
      *static_cast<volatile int*>(flag) = value;
  }
}
template <By kBy>
__device__ void wait_for(int* flag, int value) {
  if constexpr (kBy == By::release)
    while (load_acquire(flag) < value) {
    }
  else if constexpr (kBy == By::atomics)
    while (atomicAdd(flag, 0) < value) {
    }
  else
    while (*static_cast<volatile int*>(flag) < value) {
    }
  __threadfence();
}

/// One thread writes, another one reads, in each round of one launch. Correct only if the flag counts the
/// rounds.
template <By kBy>
__global__ void rounds(float* data, int* flag, float* out, int count, bool counts) {
  if (threadIdx.x != 0) return;
  for (int round = 0; round < count; ++round) {
    const int value = counts ? round + 1 : 1;
    if (blockIdx.x == 0) {
      data[round] = 1;
      set<kBy>(flag, value);
    } else {
      wait_for<kBy>(flag, value);
      out[round] = data[round];
    }
  }
}

/// The same between warps, in shared memory.
template <By kBy>
__global__ void rounds_of_a_block(float* out, bool counts) {
  __shared__ float data[kRounds];
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x % 32 != 0) return;
  for (int round = 0; round < kRounds; ++round) {
    const int value = counts ? round + 1 : 1;
    if (threadIdx.x == 0) {
      data[round] = 1;
      set<kBy>(&flag, value);
    } else {
      wait_for<kBy>(&flag, value);
      out[round] = data[round];
    }
  }
}

class TraceFlags : public sim::SimulatorTest {
 protected:
  TraceFlags() { sim::options().os_threads = 1; }

  std::string chunks_in(Order order) {
    const Values<float> data(kRounds * kThreads), out(kThreads);
    const Values<int> flags(std::vector<int>(kRounds, 0));
    return sim::error_of(2, kThreads, [&] { chunks(data.data(), flags.data(), out.data(), order); });
  }
  template <By kBy>
  std::string rounds_by(bool counts) {
    const Values<float> data(kRounds), out(kRounds);
    const Values<int> flag(std::vector<int>{0});
    return sim::error_of(2, 32, [&] { rounds<kBy>(data.data(), flag.data(), out.data(), kRounds, counts); });
  }
  template <By kBy>
  std::string rounds_of_a_block_by(bool counts) {
    const Values<float> out(kRounds);
    return sim::error_of(1, 64, [&] { rounds_of_a_block<kBy>(out.data(), counts); });
  }
  /// Launches twice, like a replayed graph, and returns the reports. Correct only if the flag is reset.
  template <By kBy>
  std::string replays(bool resets) {
    const Values<float> data(kRounds), out(kRounds);
    const Values<int> flag(std::vector<int>{0});
    const auto launch = [&] {
      return sim::error_of(2, 32, [&] { rounds<kBy>(data.data(), flag.data(), out.data(), 1, true); });
    };
    EXPECT_EQ(launch(), "");
    sim::error_of(1, 1, [&] { *flag.data() = resets ? 0 : 1; });
    return launch();
  }
};

TEST_F(TraceFlags, AllFenceThenABarrierThenOneSetsTheFlag) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    sim::options().seed = seed;
    EXPECT_EQ(chunks_in(Order::fence_barrier_flag), "");
    EXPECT_EQ(chunks_in(Order::barrier_fence_flag), "");
    for (const Order wrong : {Order::fence_before_the_store, Order::no_fence})
      expect_in(chunks_in(wrong), "block 0 wrote at " + sim::line(kStoreLine));
    const Values<float> out(32);
    EXPECT_EQ(sim::error_of(1, 64, [&] { chunks_of_a_warp(out.data(), false); }), "");
    expect_in(sim::error_of(1, 64, [&] { chunks_of_a_warp(out.data(), true); }), "data race in block 0");
  }
}

constexpr const char* kCause = "the flag that the second one waits for was set to the value it already had";

TEST_F(TraceFlags, AFlagOfTheRoundBeforeKeepsNobodyWaiting) {
  for (const std::string& error :
       {rounds_by<By::release>(false), rounds_by<By::atomics>(false), rounds_by<By::volatile_words>(false),
        rounds_of_a_block_by<By::atomics>(false), rounds_of_a_block_by<By::volatile_words>(false)})
    expect_in(error, kCause);
  for (const std::string& error :
       {rounds_by<By::release>(true), rounds_by<By::atomics>(true), rounds_by<By::volatile_words>(true),
        rounds_of_a_block_by<By::atomics>(true), rounds_of_a_block_by<By::volatile_words>(true)})
    EXPECT_EQ(error, "");
}

TEST_F(TraceFlags, AFlagOfTheLaunchBeforeKeepsNobodyWaiting) {
  for (const std::string& error :
       {replays<By::release>(false), replays<By::atomics>(false), replays<By::volatile_words>(false)})
    expect_in(error, kCause);
  for (const std::string& error :
       {replays<By::release>(true), replays<By::atomics>(true), replays<By::volatile_words>(true)})
    EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace flashbook
