/// \file
/// Block orders: in random order, blocks switch wherever others can see their work.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "common/ptx/atomic.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

constexpr uint64_t kSeeds = 24;

/// Block 0 clears the sums to which all blocks add; `ordered`: they first wait until it has.
__global__ void clear_and_add(float* sums, int* cleared, bool ordered) {
  if (blockIdx.x == 0) {
    sums[threadIdx.x] = 0;
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

/// Block 0 writes three numbers to one place, block 1 reads it three times; `waits`: the blocks wait for each
/// other.
__global__ void hand_over(float* place, int* filled, int* emptied, float* out, bool waits) {
  for (int round = 0; round < 3; ++round) {
    if (blockIdx.x == 0) {
      while (waits && load_acquire(emptied) < round) {
      }
      *place = float(round + 1);
      store_release(filled, round + 1);
    } else {
      while (load_acquire(filled) < round + 1) {
      }
      out[round] = *place;
      store_release(emptied, round + 1);
    }
  }
}

/// The numbers of the blocks, in the order of their additions.
__global__ void take_numbers(int* counter, int* order) {
  for (int i = 0; i < 4; ++i) order[atomicAdd(counter, 1)] = int(blockIdx.x);
}

class BlockOrders : public sim::SimulatorTest {
 protected:
  BlockOrders() { sim::options().os_threads = 1; }

  static std::vector<float> sums(bool ordered) {
    const Values<float> sums(std::vector<float>(32, -1.0f));
    const Values<int> cleared(std::vector<int>{0});
    EXPECT_EQ(sim::error_of(4, 32, [&] { clear_and_add(sums.data(), cleared.data(), ordered); }), "");
    return sums.get();
  }
  static std::vector<float> handed_over(bool waits) {
    const Values<float> place(1), out(3);
    const Values<int> counts(std::vector<int>{0, 0});
    EXPECT_EQ(
        sim::error_of(2, 1,
                      [&] { hand_over(place.data(), counts.data(), counts.data() + 1, out.data(), waits); }),
        "");
    return out.get();
  }
  static std::vector<int> order() {
    const Values<int> counter(std::vector<int>{0}), order(std::vector<int>(32, -1));
    EXPECT_EQ(sim::error_of(8, 1, [&] { take_numbers(counter.data(), order.data()); }), "");
    return order.get();
  }
};

TEST_F(BlockOrders, WhatIsWrongInSomeOrderIsWrongInSomeOrderHere) {
  EXPECT_EQ(sums(false), std::vector<float>(32, 4));
  EXPECT_EQ(handed_over(false), std::vector<float>(3, 3));
  int lost = 0;
  std::set<std::vector<float>> seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sim::options().seed = seed;
    lost += sums(false) != std::vector<float>(32, 4);
    seen.insert(handed_over(false));
  }
  EXPECT_GT(lost, 2);
  EXPECT_GT(seen.size(), 2u);
  EXPECT_TRUE(seen.contains({1, 2, 3}));
}

TEST_F(BlockOrders, WhatIsRightIsRightInAnyOrder) {
  for (const int os_threads : {1, 2})
    for (uint64_t seed = 0; seed <= kSeeds; ++seed) {
      sim::options().os_threads = os_threads;
      sim::options().seed = seed;
      EXPECT_EQ(sums(true), std::vector<float>(32, 4));
      EXPECT_EQ(handed_over(true), (std::vector<float>{1, 2, 3}));
    }
}

TEST_F(BlockOrders, OnOneOsThreadASeedIsAnOrder) {
  const std::vector<int> one_after_another = order();
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sim::options().seed = seed;
    orders.insert(order());
    EXPECT_EQ(order(), order());
  }
  EXPECT_GT(orders.size(), kSeeds / 2);
  EXPECT_TRUE(std::is_sorted(one_after_another.begin(), one_after_another.end()));
}

// Nor does the system decide which block continues when they wait for each other.
TEST_F(BlockOrders, OnOneOsThreadBlocksThatPollHaveAnOrder) {
  sim::options().seed = 0;
  const auto order = [] {
    constexpr int kBlocks = 3;
    const Values<int> came(std::vector<int>{0}), place(std::vector<int>{0}), order(2 * kBlocks);
    EXPECT_EQ(sim::error_of(kBlocks, 1,
                            [&] {
                              for (int round = 0; round < 2; ++round) {
                                order.data()[atomicAdd(place.data(), 1)] = int(blockIdx.x);
                                atomicAdd(came.data(), 1);
                                while (atomicAdd(came.data(), 0) < kBlocks) {
                                }
                              }
                            }),
              "");
    return order.get();
  };
  const std::vector<int> first = order();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order(), first);
}

TEST_F(BlockOrders, WhoWaitsForNobodyIsToldSoInAnyOrder) {
  sim::options().timeout = 1;
  for (const uint64_t seed : {0, 1, 2}) {
    sim::options().seed = seed;
    const Values<int> flag(std::vector<int>{0});
    const std::string error = sim::error_of(3, 1, [&] {
      while (load_acquire(flag.data()) < 3) {
        if (blockIdx.x < 2 && load_acquire(flag.data()) == int(blockIdx.x))
          store_release(flag.data(), int(blockIdx.x) + 1);
      }
    });
    sim::expect_in(error, "livelock in block (");
  }
}

}  // namespace
}  // namespace flashbook
