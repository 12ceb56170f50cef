/// \file
/// Kernels that never end, each of which must be reported, and kernels that only look like that.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

class Watchdog : public sim::SimulatorTest {
 protected:
  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
};

#ifdef __GLIBC__

TEST_F(Watchdog, EndlessLoopNamesItsThreadAndItsLines) {
  sim::options().timeout = 1;
  constexpr int kLine = __LINE__ + 2;
  const std::string error = sim::error_of(2, 64, [] {
    __syncthreads();
    volatile int flag = 0;
    while (threadIdx.x == 37 && blockIdx.x == 0 && flag == 0) {
    }
  });
  expect_contains(error, "a thread has run for 1 seconds (FLASHBOOK_SIM_TIMEOUT) without waiting or exiting");
  expect_contains(error, "usually a loop whose counter does not advance. If it reads a flag that another");
  expect_contains(error, "in block (0,0,0), thread (37,0,0), warp 1, lane 5, at " + sim::line(kLine + 2) +
                             ", after __syncthreads at " + sim::line(kLine));
}

TEST_F(Watchdog, TheNextGridRuns) {
  sim::options().timeout = 1;
  const std::string error = sim::error_of(1, 1, [] {
    volatile bool go_on = true;
    while (go_on) {
    }
  });
  expect_contains(error, "before it waited for anything");
  int count = 0;
  EXPECT_EQ(sim::error_of(4, 64, [&] { atomicAdd(&count, 1); }), "");
  EXPECT_EQ(count, 256);
}
#endif

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && defined(__x86_64__)  // other processors allow it
TEST_F(Watchdog, DivisionsByZeroAreReports) {
  static volatile int zero = 0;
  constexpr int kLine = __LINE__ + 2;
  const std::string error = sim::error_of(2, 32, [] {
    if (threadIdx.x == 7) zero = 100 / zero;
  });
  expect_contains(error, "an integer is divided by zero");
  expect_contains(error, "in block (0,0,0), thread (7,0,0), warp 0, lane 7, at " + sim::line(kLine));
}

TEST_F(Watchdog, WildAddressesAreReports) {
  constexpr int kLine = __LINE__ + 2;
  const std::string error = sim::error_of(2, 32, [] {
    if (threadIdx.x == 7) *reinterpret_cast<volatile int*>(std::uintptr_t(1) << 46) = 0;
  });
  expect_contains(error, "out of bounds: a thread accesses");
  expect_contains(error, "in block (0,0,0), thread (7,0,0), warp 0, lane 7, at " + sim::line(kLine));
}
#endif

TEST_F(Watchdog, PollingByAtomicsLetsTheOthersRun) {
  // Warp 0 waits for a flag that warp 1 sets, whichever runs first: on a GPU they run concurrently.
  for (uint64_t seed = 0; seed <= 16; ++seed) {
    sim::options().seed = seed;
    EXPECT_EQ(sim::error_of(1, 64,
                            [] {
                              __shared__ int flags[3];
                              if (threadIdx.x < 3) flags[threadIdx.x] = 0;
                              __syncthreads();
                              if (threadIdx.x < 32) {
                                while (atomicAdd(&flags[0], 0) == 0) {
                                }
                                while (atomicCAS(&flags[1], 1, 1) == 0) {
                                }
                                while (atomicExch(&flags[2], 0) == 0 && threadIdx.x == 0) {
                                }
                              } else {
                                for (int& flag : flags) atomicExch(&flag, 1);
                              }
                            }),
              "")
        << seed;
  }
}

TEST_F(Watchdog, PollingByAtomicsForNothingIsALivelock) {
  constexpr int kLine = __LINE__ + 4;
  const std::string error = sim::error_of(1, 32, [] {
    __shared__ unsigned lock;
    lock = 1;
    while (threadIdx.x == 7 && atomicCAS(&lock, 0u, 1u) != 0) {
    }
  });
  expect_contains(error, "livelock in block (0,0,0)");
  expect_contains(error, "warp 0, lane 7: atomicCAS at " + sim::line(kLine) + ", again and again");
}

TEST_F(Watchdog, TakingTilesForeverIsAnInfiniteLoop) {
  sim::options().timeout = 1;
  const Values<unsigned> taken(std::vector<unsigned>{0});
  const std::string error = sim::error_of(1, 64, [counter = taken.data()] {
    __shared__ unsigned tile;
    do {
      __syncthreads();
      if (threadIdx.x == 0) tile = atomicAdd(counter, 1u);
      __syncthreads();
    } while (tile != ~0u);
  });
  expect_contains(error, "infinite loop: atomicAdd at watchdog_test.cpp:");
}

TEST_F(Watchdog, BlocksThatWaitForEachOtherRunAtOneTime) {
  const auto error_with = [](int os_threads, unsigned blocks, unsigned expected) {
    sim::options().os_threads = os_threads;
    unsigned arrived = 0;
    return sim::error_of(blocks, 1, [&arrived, expected] {
      atomicAdd(&arrived, 1u);
      while (atomicAdd(&arrived, 0u) < expected) {
      }
    });
  };
  EXPECT_EQ(error_with(3, 3, 3), "");
  EXPECT_EQ(error_with(1, 20, 20), "");
  sim::options().timeout = 1;
  expect_contains(error_with(1, 3, 4), "livelock in block (0,0,0)");
  const std::string error = error_with(1, 70, 70);
  expect_contains(error, "livelock in block (0,0,0)");
  expect_contains(error, "64 of 70 blocks run at a time");
  expect_contains(error, "FLASHBOOK_SIM_THREADS=70 runs all of them at the same time");
}

}  // namespace
}  // namespace flashbook
