/// \file
/// Kernels that never end, each of which must be reported, and kernels that only look like that.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

class Watchdog : public sim::SimulatorTest {
 protected:
  static void expect_contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
};

#ifdef __GLIBC__
/// While it exists, other threads compete for the machine's processors.
class BusyMachine {
 public:
  BusyMachine() {
    for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i)
      threads_.emplace_back([this] {
        while (!over_) {
        }
      });
  }
  ~BusyMachine() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

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

__attribute__((noinline)) void spin(const volatile int* flag) {
  while (*flag == 0) {
  }
}
constexpr int kLineInSpin = __LINE__ - 3;

TEST_F(Watchdog, EndlessLoopIsToldWithinFiveSecondsOnABusyMachine) {
  const BusyMachine busy;
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = sim::error_of(1, 1, [] {
    volatile int flag = 0;
    spin(&flag);
  });
#ifdef __SANITIZE_ADDRESS__
  constexpr std::chrono::seconds kMax{10};  // including the time to look up lines in code with sanitizers
#else
  constexpr std::chrono::seconds kMax{5};
#endif
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kMax);
  expect_contains(error, "lane 0, at " + sim::line(kLineInSpin));
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

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
TEST_F(Watchdog, WildAddressesAndMisalignedVectorsAreReports) {
  constexpr int kLine = __LINE__ + 3;
  const std::string wild = sim::error_of(2, 32, [] {
    auto* nowhere = reinterpret_cast<volatile float*>(0x7000000000000000);
    nowhere[threadIdx.x] = 1;
  });
  expect_contains(wild, "or dereferences an invalid pointer");
  expect_contains(wild, "in block (0,0,0), thread (0,0,0), warp 0, lane 0, at " + sim::line(kLine));
  alignas(16) static unsigned char bytes[64];
  const auto add_one = [](unsigned char* at) {
    auto& vector = *reinterpret_cast<float4::Packed*>(at);
    vector = vector + 1.0f;
  };
  EXPECT_EQ(sim::error_of(1, 1, [&] { add_one(bytes + 16 * blockIdx.x); }), "");
  expect_contains(sim::error_of(1, 1, [&] { add_one(bytes + 4 + blockIdx.x); }),
                  "misaligned or out of bounds: a thread loads or stores a vector");
  expect_contains(sim::error_of(1, 1, [] { *reinterpret_cast<volatile float*>(64) = 1; }),
                  "out of bounds: a thread accesses address 0x40 (near null");
}

/// Infinite recursion, unless the depth becomes negative.
constexpr int kRecursionLine = __LINE__ + 4;
__attribute__((noinline)) int descend(volatile int* depth, bool meets) {
  volatile int here[64] = {};
  if (meets) __syncwarp();
  *depth = *depth + 1;
  here[0] = *depth < 0 ? 0 : descend(depth, meets);
  return here[0] + here[63];
}

TEST_F(Watchdog, RecursionsWithoutEndAreReports) {
  for (const bool meets : {false, true})
    for (const unsigned threads : {1u, 96u}) {
      const std::string error = sim::error_of(2, threads, [=] {
        volatile int depth = 0;
        descend(&depth, meets);
      });
      expect_contains(error, "a thread has overflowed its stack of 256 KB: infinite recursion");
      expect_contains(error, "in block (0,0,0), thread (");
      expect_contains(error, ", at watchdog_test.cpp:" + std::to_string(kRecursionLine).substr(0, 2));
    }
  // The stacks can still be used.
  EXPECT_EQ(sim::error_of(1, 96, [] { __syncthreads(); }), "");
}

#ifdef __x86_64__  // other processors allow it
TEST_F(Watchdog, DivisionsByZeroAreReports) {
  static volatile int zero = 0;
  constexpr int kLine = __LINE__ + 2;
  const std::string error = sim::error_of(2, 32, [] {
    if (threadIdx.x == 7) zero = 100 / zero;
  });
  expect_contains(error, "an integer is divided by zero");
  expect_contains(error, "in block (0,0,0), thread (7,0,0), warp 0, lane 7, at " + sim::line(kLine));
}
#endif
#endif

/// Takes tiles from a counter until it reaches `count`; `to_the_last`: only the number `count` itself ends
/// the loop.
void take_tiles(int* counter, int* tiles, int count, bool to_the_last) {
  __shared__ int tile;
  for (;;) {
    if (threadIdx.x == 0) tile = atomicAdd(counter, 1);
    __syncthreads();
    if (to_the_last ? tile == count : tile >= count) return;
    if (tile < count && threadIdx.x == 0) tiles[tile] = 1;
    __syncthreads();
  }
}

TEST_F(Watchdog, APersistentLoopThatMissesItsEnd) {
  sim::options().timeout = 1;
  auto* memory = static_cast<int*>(sim::allocate_global(9 * sizeof(int)));
  for (const bool to_the_last : {false, true}) {
    memory[8] = 0;
    const std::string error = sim::error_of(3, 64, [=] { take_tiles(memory + 8, memory, 8, to_the_last); });
    if (to_the_last) {
      expect_contains(error, "a loop that does not end: atomicAdd at watchdog_test.cpp:");
      expect_contains(error,
                      "for 1 seconds (FLASHBOOK_SIM_TIMEOUT) nothing else in device memory has changed");
    } else {
      EXPECT_EQ(error, "");
    }
  }
  sim::free_global(memory);
}

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
