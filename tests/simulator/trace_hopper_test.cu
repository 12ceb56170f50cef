/// \file
/// Races with the async proxy, which performs TMA and WGMMA. This file is instrumented (flashbook_traced).
#include <string>
#include <vector>

#include "common/device/tensor_map.h"
#include "common/ptx/barrier.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "common/simulator/trace/trace.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

/// The step that a kernel omits.
enum class Missing {
  nothing,
  fence,
  barrier,
  barrier_of_a_warp,
  wait,
  wait_before_copy,
  empty,
  read_only_wait,
  second_launch
};

constexpr unsigned kThreads = 128, kRows = 32, kColumns = 32;
constexpr uint32_t kTileBytes = kRows * kColumns * 4;

constexpr int kFillLine = __LINE__ + 5;
/// Fills a tile, stores it by TMA, fills it again, and stores it after the first.
__global__ void fill_and_store(const CUtensorMap& map, Missing missing) {
  auto* tile = dynamic_shared<float>();
  for (int round = 0; round < 2; ++round) {
    for (unsigned i = threadIdx.x; i < kRows * kColumns; i += kThreads) tile[i] = float(round);
    if (missing != Missing::fence) fence_proxy_async();
    if (missing != Missing::barrier) __syncthreads();
    if (threadIdx.x == 0) {
      tma_store(map, tile, {0, round * int(kRows)});
      tma_store_commit();
      if (missing != Missing::wait) tma_store_wait_read<0>();
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) tma_store_wait_read<0>();
}

/// Stores a tile by TMA and reads it back, by TMA or without.
__global__ void store_and_read_back(const CUtensorMap& map, const float* tensor, float* out, Missing missing,
                                    bool by_tma) {
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full;
  for (unsigned i = threadIdx.x; i < kRows * kColumns; i += kThreads) tile[i] = 5;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    tma_store(map, tile, {0, 0});
    tma_store_commit();
    tma_store_wait_read<0>();
    if (missing != Missing::read_only_wait) tma_store_wait<0>();
    if (by_tma) {
      mbarrier_arrive_expect_tx(&full, kTileBytes);
      tma_load(tile, map, &full, {0, 0});
      mbarrier_wait(&full, 0);
    }
  }
  __syncthreads();
  out[threadIdx.x] = by_tma ? tile[threadIdx.x] : tensor[threadIdx.x];
  if (threadIdx.x == 0) tma_store_wait<0>();
}

/// Writes a tile in shared memory, or the tensor, and loads the tensor over the tile by TMA.
__global__ void write_and_load(const CUtensorMap& map, float* tensor, Missing missing) {
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full;
  (missing == Missing::second_launch ? tensor : tile)[threadIdx.x] = 2;
  if (missing != Missing::fence) fence_proxy_async();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, kTileBytes);
    tma_load(tile, map, &full, {0, 0});
  }
  mbarrier_wait(&full, 0);
}

/// Thread 0 loads tile after tile into one stage; the others read them.
__global__ void load_and_read(const CUtensorMap& map, float* out, Missing missing) {
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full, empty;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_init(&empty, kThreads - 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  float sum = 0;
  for (unsigned round = 0; round < 3; ++round) {
    if (threadIdx.x == 0) {
      mbarrier_wait(&empty, (round + 1) & 1);
      mbarrier_arrive_expect_tx(&full, kTileBytes);
      tma_load(tile, map, &full, {0, 0});
    } else if (threadIdx.x >= 32) {
      mbarrier_wait(&full, round & 1);
      if (missing == Missing::empty) mbarrier_arrive(&empty);  // arrives before it has read
      sum += tile[threadIdx.x];
      if (missing != Missing::empty) mbarrier_arrive(&empty);
    }
  }
  out[threadIdx.x] = sum;
}

constexpr int kStaleWaitLine = __LINE__ + 13;
/// Loads two tiles into one stage. `turns`: whether the parity alternates.
__global__ void load_twice(const CUtensorMap& map, float* out, bool turns) {
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
  }
  for (unsigned round = 0; round < 2; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(&full, kTileBytes);
    if (threadIdx.x == 0) tma_load(tile, map, &full, {0, 0});
    mbarrier_wait(&full, turns ? round : 0);
    out[threadIdx.x] = tile[threadIdx.x];
  }
  mbarrier_wait(&full, 1);
}

constexpr int kManyTiles = 40;
/// Loads many tiles, each with its own barrier, and reads the last but one after waiting for it, or only for
/// the last.
__global__ void load_many(const CUtensorMap& map, float* out, Missing missing) {
  auto* tiles = dynamic_shared<float>();
  __shared__ uint64_t full[kManyTiles];
  if (threadIdx.x == 0) {
    for (auto& barrier : full) mbarrier_init(&barrier, 1);
    fence_mbarrier_init();
    for (int i = 0; i < kManyTiles; ++i) {
      mbarrier_arrive_expect_tx(&full[i], kTileBytes);
      tma_load(tiles + i * kRows * kColumns, map, &full[i], {0, 0});
    }
  }
  __syncthreads();
  mbarrier_wait(&full[missing == Missing::wait ? kManyTiles - 1 : kManyTiles - 2], 0);
  out[threadIdx.x] = tiles[(kManyTiles - 2) * kRows * kColumns + threadIdx.x];
  for (auto& barrier : full) mbarrier_wait(&barrier, 0);
}

/// Multiplies two tiles of ones written by the threads, and overwrites one of them.
__global__ void multiply(float* out, Missing missing) {
  auto* halves = dynamic_shared<__half>();
  for (unsigned i = threadIdx.x; i < 8192; i += kThreads) halves[i] = to_f16(1);
  if (missing != Missing::fence) fence_proxy_async();
  if (missing == Missing::barrier_of_a_warp && threadIdx.x / 32 == 2)
    named_barrier_arrive<1, kThreads>();
  else if (missing != Missing::barrier)
    named_barrier_sync<1, kThreads>();
  const uint64_t a = wgmma_descriptor<Swizzle::none>(halves, 1024, 128);
  const uint64_t b = wgmma_descriptor<Swizzle::none>(halves + 4096, 1024, 128);
  float d[8] = {};
  wgmma_fence();
  wgmma<__half, 16>(d, a, b, false);
  wgmma_commit();
  const float early = missing == Missing::wait_before_copy ? d[1] : 0.0f;
  if (missing != Missing::wait) wgmma_wait<0>();
  __syncthreads();
  halves[threadIdx.x] = to_f16(2);
  wgmma_wait<0>();
  out[threadIdx.x] = d[0] + early;
}

class TraceHopper : public sim::SimulatorTest {
 protected:
  std::string stores(Missing missing) {
    return sim::error_of(1, kThreads, kTileBytes, [&] { fill_and_store(map_, missing); });
  }
  std::string loads(Missing missing) {
    return sim::error_of(1, kThreads, kTileBytes, [&] { load_and_read(map_, out_.data(), missing); });
  }
  std::string reads_back(Missing missing, bool by_tma) {
    return sim::error_of(1, kThreads, kTileBytes,
                         [&] { store_and_read_back(map_, tensor_.data(), out_.data(), missing, by_tma); });
  }
  std::string loads_over(Missing missing) {
    return sim::error_of(1, kThreads, kTileBytes, [&] { write_and_load(map_, tensor_.data(), missing); });
  }
  std::string loads_many(Missing missing) {
    return sim::error_of(1, kThreads, kManyTiles * kTileBytes,
                         [&] { load_many(map_, out_.data(), missing); });
  }
  std::string multiplies(Missing missing) {
    return sim::error_of(1, kThreads, 16384, [&] { multiply(out_.data(), missing); });
  }

  Values<float> tensor_{std::vector<float>(2 * kRows * kColumns, 1.0f)}, out_{kThreads};
  CUtensorMap map_ = device::tensor_map({.dtype = DType::f32,
                                         .base = tensor_.data(),
                                         .size = {kColumns, 2 * kRows},
                                         .stride = {4 * kColumns},
                                         .box = {kColumns, kRows},
                                         .swizzle = Swizzle::none});
};

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << text << "\nlacks: " << part;
}

TEST_F(TraceHopper, NobodyWhoIsRightIsAccused) {
  for (const sim::Async async : {sim::Async::lazy, sim::Async::eager, sim::Async::random}) {
    sim::options().async = async;
    EXPECT_EQ(stores(Missing::nothing), "");
    EXPECT_EQ(loads(Missing::nothing), "");
    EXPECT_EQ(multiplies(Missing::nothing), "");
    EXPECT_EQ(loads_many(Missing::nothing), "");
    EXPECT_EQ(reads_back(Missing::nothing, false), "");
    EXPECT_EQ(reads_back(Missing::nothing, true), "");
    EXPECT_EQ(loads_over(Missing::nothing), "");
  }
}

TEST_F(TraceHopper, AStoreByTmaNeedsFenceAndBarrier) {
  const std::string error = stores(Missing::fence);
  expect_in(error, "wrote at " + sim::line(kFillLine));
  expect_in(error, "the async proxy read at tma_store at trace_hopper_test.cu:");
  expect_in(error, "must call fence_proxy_async");
  const std::string unordered = stores(Missing::barrier);
  expect_in(unordered, "wrote at " + sim::line(kFillLine));
  expect_in(unordered, "the async proxy read at tma_store at trace_hopper_test.cu:");
}

TEST_F(TraceHopper, ATileIsOverwrittenAfterItsStoreHasReadIt) {
  expect_in(stores(Missing::wait), "nothing ensures that the read has finished");
}

TEST_F(TraceHopper, AStoreThatHasReadItsTileHasNotHappened) {
  for (const sim::Async async : {sim::Async::lazy, sim::Async::eager}) {
    sim::options().async = async;
    for (const bool by_tma : {false, true}) {
      const std::string error = reads_back(Missing::read_only_wait, by_tma);
      expect_in(error, "the async proxy wrote at tma_store at trace_hopper_test.cu:");
      expect_in(error, "tma_store_wait_read only ensures that the tile has been read");
    }
  }
}

TEST_F(TraceHopper, EachOfManyBarriersIsWaitedFor) {
  expect_in(loads_many(Missing::wait), "the async proxy wrote at tma_load at trace_hopper_test.cu:");
}

TEST_F(TraceHopper, RacesOfABlockThatEndedWellHaveASuspect) {
  const auto loads_twice = [&](bool turns) {
    return sim::error_of(1, kThreads, kTileBytes, [&] { load_twice(map_, out_.data(), turns); });
  };
  EXPECT_EQ(loads_twice(true), "");
  const std::string error = loads_twice(false);
  expect_in(error, "the async proxy wrote at tma_load at trace_hopper_test.cu:");
  expect_in(error, "suspect: a wait at " + sim::line(kStaleWaitLine) + ", thread ");
  expect_in(error, " waited again for phase 0 of the mbarrier");
}

TEST_F(TraceHopper, TmaLoadsOverPlainStoresAfterAFence) {
  const std::string error = loads_over(Missing::fence);
  expect_in(error, "the async proxy wrote at tma_load at trace_hopper_test.cu:");
  expect_in(error, "must call fence_proxy_async");
}

TEST_F(TraceHopper, TmaDoesNotSeePlainStoresToTheTensor) {
  expect_in(loads_over(Missing::second_launch), "TMA does not see plain stores to global memory");
}

TEST_F(TraceHopper, AStageIsFilledAfterItsReadersAreDone) {
  const std::string error = loads(Missing::empty);
  expect_in(error, "tma_load at trace_hopper_test.cu:");
}

TEST_F(TraceHopper, OperandsOfWgmmaAreFencedBeforeAndWaitedForAfter) {
  expect_in(multiplies(Missing::fence), "must call fence_proxy_async");
  expect_in(multiplies(Missing::barrier), "wrote at trace_hopper_test.cu:");
  expect_in(multiplies(Missing::barrier_of_a_warp),
            "thread 64 (warp 2, lane 0) read at wgmma at trace_hopper_test.cu:");
  expect_in(multiplies(Missing::wait), "the async proxy read at wgmma at trace_hopper_test.cu:");
}

TEST_F(TraceHopper, AccumulatorsAreCopiedAfterTheirWait) {
#ifdef __clang__
  GTEST_SKIP() << "clang++ reports no load from a local array of the function itself";
#endif
  for (const sim::Async async : {sim::Async::lazy, sim::Async::eager}) {
    sim::options().async = async;
    const std::string error = multiplies(Missing::wait_before_copy);
    expect_in(error, "accumulator register 1 is read at trace_hopper_test.cu:");
    expect_in(error, "while the wgmma at trace_hopper_test.cu:");
  }
}

TEST_F(TraceHopper, TmaMovesSectors) {
  sim::take_trace();
  EXPECT_EQ(loads(Missing::nothing), "");
  const sim::LaunchTrace launch = sim::take_trace().back();
  EXPECT_EQ(launch.bytes_requested_read, 3 * kTileBytes);
  EXPECT_EQ(launch.bytes_distinct_read, kTileBytes);
  EXPECT_EQ(stores(Missing::nothing), "");
  EXPECT_EQ(sim::take_trace().back().bytes_requested_written, 2 * kTileBytes);
}

}  // namespace
}  // namespace flashbook
