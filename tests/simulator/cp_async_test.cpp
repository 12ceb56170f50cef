/// \file
/// Errors in the use of cp.async.
#include "common/ptx/cp_async.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/ptx/mbarrier.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

// Kernels of a few threads that read their copies at various times. in: [4] floats per thread.

__global__ void read_without_wait(const float* in, float* out) {
  __shared__ __align__(16) float tile[4];
  cp_async_cg(tile, in);
  cp_async_commit();
  out[0] = tile[0];
  cp_async_wait<0>();
  out[1] = tile[0];
}

/// Overwrites the source before waiting: the copy may still be reading it.
__global__ void overwrite_the_source(float* in, float* out) {
  __shared__ __align__(16) float tile[4];
  cp_async_ca<4>(tile, in);
  in[0] = -1;
  cp_async_wait_all();
  out[0] = tile[0];
}

constexpr int kCopyLine = __LINE__ + 2;
__global__ void copy_16(unsigned char* shared, const unsigned char* global, int valid) {
  cp_async_cg(shared, global, valid);
  cp_async_wait_all();
}

/// The second warp reads what the first one has copied when the copies' mbarrier lets it. `arrivals`: those
/// that the mbarrier expects.
__global__ void read_tracked_copies(const float* in, float* out, uint32_t arrivals) {
  __shared__ __align__(16) float tile[32][4];
  __shared__ uint64_t full;
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x == 0) mbarrier_init(&full, arrivals);
  __syncthreads();
  if (threadIdx.x < 32) {
    cp_async_cg(tile[lane], in + lane * 4);
    cp_async_arrive(&full);
    out[lane] = tile[lane][0];
    if (arrivals > 32 && lane == 0) mbarrier_arrive(&full);
  } else {
    mbarrier_wait(&full, 0);
    out[threadIdx.x] = tile[lane][0];
  }
}

class CpAsync : public sim::SimulatorTest {
 protected:
  CpAsync() { sim::options().async = sim::Async::lazy; }

  /// Returns the output of a kernel with `threads` threads.
  template <typename... Args>
  std::vector<float> run(unsigned threads, void (*kernel)(const float*, float*, Args...), Args... args) {
    std::vector<float> numbers(64 * 4);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i + 1);
    const Values<float> in(numbers), out(64);
    sim::run_grid(1, threads, 0, [&] { kernel(in.data(), out.data(), args...); });
    return out.get();
  }

  /// Returns the error of a copy between 64 bytes of device memory and 64 bytes of dynamic shared memory.
  std::string error_of_copy(int to, int from, int valid) {
    const Values<unsigned char> in(64);
    return sim::error_of(1, 1, 64,
                         [&] { copy_16(dynamic_shared<unsigned char>() + to, in.data() + from, valid); });
  }
};

using sim::expect_in;

TEST_F(CpAsync, IsNaNUntilItIsWaitedFor) {
  const auto got = run(1, read_without_wait);
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], 1.0f);
}

TEST_F(CpAsync, EagerCopiesHideAMissingWait) {
  sim::options().async = sim::Async::eager;
  EXPECT_EQ(run(1, read_without_wait)[0], 1.0f);
}

TEST_F(CpAsync, RandomCopiesLandBeforeTheWaitOrInItBySeed) {
  sim::options().async = sim::Async::random;
  int early = 0;
  for (uint64_t seed = 0; seed < 64; ++seed) {
    sim::options().seed = seed;
    const auto got = run(1, read_without_wait);
    early += !std::isnan(got[0]);
    EXPECT_EQ(got[1], 1.0f);
    EXPECT_EQ(std::isnan(run(1, read_without_wait)[0]), std::isnan(got[0])) << "the same seed, another order";
  }
  EXPECT_GT(early, 10);
  EXPECT_LT(early, 60);
}

TEST_F(CpAsync, ReadsItsSourceAsLateAsItMay) {
  const Values<float> in(std::vector<float>{5}), out(1);
  sim::run_grid(1, 1, 0, [&] { overwrite_the_source(in.data(), out.data()); });
  EXPECT_EQ(out.get()[0], -1.0f);
}

TEST_F(CpAsync, AnMbarrierWaitsForTheCopiesThatItTracks) {
  for (const sim::Async async : {sim::Async::eager, sim::Async::lazy, sim::Async::random})
    for (uint32_t arrivals : {32, 33}) {
      sim::options().async = async;
      const auto got = run(64, read_tracked_copies, arrivals);
      for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(got[32 + i], float(4 * i + 1));
      EXPECT_TRUE(async != sim::Async::lazy || std::isnan(got[0])) << "landed before it had to";
    }
}

TEST_F(CpAsync, CopiesOfOneBlockDoNotReachTheNext) {
  // Never waited for: nothing lands, and nothing is left for the next block on the same OS thread.
  sim::options().os_threads = 1;
  const Values<float> in(std::vector<float>(4, 3.0f)), out(2);
  sim::run_grid(2, 1, 0, [&] {
    __shared__ __align__(16) float tile[4];
    cp_async_wait_all();
    out.data()[blockIdx.x] = tile[0];
    cp_async_cg(tile, in.data());
  });
  for (float value : out.get()) EXPECT_TRUE(std::isnan(value));
}

TEST_F(CpAsync, AddressesOutOfRangeAreReported) {
  expect_in(error_of_copy(64, 0, 16),
            "cp_async_cg at " + sim::line(kCopyLine) +
                ": 16 bytes at dynamic shared memory + 64 of 64 bytes are not in the "
                "block's shared memory");
  expect_in(error_of_copy(-16, 0, 16), "dynamic shared memory - 16 of 64 bytes");
  expect_in(error_of_copy(0, 64, 16), "are not in an allocation of device memory");
  EXPECT_EQ(error_of_copy(48, 48, 16), "");
  // Bytes that are not read may have any address, such as a row beyond the edge.
  EXPECT_EQ(error_of_copy(0, 64, 0), "");
  alignas(16) unsigned char on_the_host[16] = {};
  expect_in(sim::error_of(1, 1, 64, [&] { copy_16(on_the_host, on_the_host, 0); }),
            "the block's shared memory");
  expect_in(sim::error_of(1, 1, 64, [&] { copy_16(dynamic_shared<unsigned char>(), on_the_host, 16); }),
            "an allocation of device memory");
}

TEST_F(CpAsync, PartsThatMakeNoSenseAreReported) {
  expect_in(error_of_copy(0, 0, 17), "cp_async_cg at " + sim::line(kCopyLine) + " copies 17 valid bytes");
  expect_in(error_of_copy(0, 0, -1), "give 0 to 16");
}

TEST_F(CpAsync, OutsideAKernelIsReported) { EXPECT_THROW(cp_async_commit(), sim::Error); }

}  // namespace
}  // namespace flashbook
