#include <set>
#include <vector>

#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

/// Every thread of every block adds; nothing may be lost, however many OS threads run the blocks.
__global__ void count(int* i, unsigned* u, unsigned long long* l, float* f) {
  for (int round = 0; round < 10; ++round) {
    atomicAdd(i, 1);
    atomicAdd(u, 1u);
    atomicAdd(l, 1ull);
    atomicAdd(f, 1.0f);
  }
}

/// Hands every thread a ticket of its own.
__global__ void take_tickets(unsigned* counter, unsigned* tickets) {
  tickets[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1u);
}

__global__ void keep_the_largest(int* i, unsigned* u, unsigned long long* l) {
  const int self = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMax(i, self - 1000);
  atomicMax(u, unsigned(self));
  atomicMax(l, 1ull << (self % 60));
}

/// Adds by compare and swap, as a kernel does for a type that has no atomicAdd.
__global__ void add_by_swapping(unsigned* sum) {
  unsigned old = *sum, seen;
  do {
    seen = old;
    old = atomicCAS(sum, seen, seen + 2);
  } while (old != seen);
}

constexpr unsigned kBlocks = 64, kThreads = 64;
using Atomics = sim::SimulatorTest;

TEST_F(Atomics, LoseNothingBetweenOsThreads) {
  sim::options().os_threads = 4;
  int i = 0;
  unsigned u = 0;
  unsigned long long l = 1ull << 40;
  float f = 0;
  sim::run_grid(kBlocks, kThreads, 0, [&] { count(&i, &u, &l, &f); });
  EXPECT_EQ(i, 40960);
  EXPECT_EQ(u, 40960u);
  EXPECT_EQ(l, (1ull << 40) + 40960);
  EXPECT_EQ(f, 40960.0f);
}

TEST_F(Atomics, ReturnWhatWasThere) {
  sim::options().os_threads = 4;
  unsigned counter = 0;
  std::vector<unsigned> tickets(kBlocks * kThreads);
  sim::run_grid(kBlocks, kThreads, 0, [&] { take_tickets(&counter, tickets.data()); });
  EXPECT_EQ(std::set<unsigned>(tickets.begin(), tickets.end()).size(), tickets.size());
}

TEST_F(Atomics, MaxCompareAndExchange) {
  sim::options().os_threads = 4;
  int i = -5000;
  unsigned u = 0, sum = 0;
  unsigned long long l = 0;
  sim::run_grid(kBlocks, kThreads, 0, [&] { keep_the_largest(&i, &u, &l); });
  EXPECT_EQ(i, int(kBlocks * kThreads) - 1 - 1000);
  EXPECT_EQ(u, kBlocks * kThreads - 1);
  EXPECT_EQ(l, 1ull << 59);
  sim::run_grid(kBlocks, kThreads, 0, [&] { add_by_swapping(&sum); });
  EXPECT_EQ(sum, 2 * kBlocks * kThreads);
  float f = 1.5f;
  EXPECT_EQ(atomicExch(&f, 2.5f), 1.5f);
  EXPECT_EQ(f, 2.5f);
  EXPECT_EQ(atomicExch(&i, 3), int(kBlocks * kThreads) - 1001);
  EXPECT_EQ(i, 3);
  EXPECT_EQ(atomicCAS(&i, 4, 9), 3);
  EXPECT_EQ(i, 3);
}

}  // namespace
}  // namespace flashbook
