#include "common/ptx/barrier.h"

#include <string>

#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

// Kernels.

constexpr int kBothLanesLine = __LINE__ + 1;
__global__ void sync_in_both_branches_of_a_line() { threadIdx.x % 2 ? __syncthreads() : __syncthreads(); }

__global__ void sync_on_two_lines(int* result) {
  __shared__ int left, right;
  if (threadIdx.x < 32) {
    left = 1;
    __syncthreads();
    result[0] = right;
  } else {
    right = 2;
    __syncthreads();
    result[1] = left;
  }
}

constexpr int kFirstSyncLine = __LINE__ + 3;
__global__ void wait_at_different_barriers() {
  if (threadIdx.x < 32)
    named_barrier_sync<3, 64>();
  else if (threadIdx.x < 48)
    __syncthreads();
  else if (threadIdx.x < 64)
    __syncwarp();
}

// Tests.

using sim::error_of;
using sim::line;
using Barriers = sim::SimulatorTest;

TEST_F(Barriers, CallsInOneLineAreToldApart) {
  const std::string error = error_of(1, 64, sync_in_both_branches_of_a_line);
  EXPECT_EQ(error.find("divergent warp: lane 1 is in __syncthreads at " + line(kBothLanesLine) + ":"), 0u)
      << error;
  EXPECT_NE(error.find("but lane 0 waits in __syncthreads at " + line(kBothLanesLine) + ":"), error.npos)
      << error;
}

TEST_F(Barriers, SyncthreadsMayStandOnSeveralLines) {
  int result[2] = {};
  sim::run_grid(1, 64, 0, [&] { sync_on_two_lines(result); });
  EXPECT_EQ(result[0], 2);
  EXPECT_EQ(result[1], 1);
}

TEST_F(Barriers, ADeadlockNamesWarpsLinesAndBarriers) {
  const std::string here = line(kFirstSyncLine);
  EXPECT_EQ(error_of(dim3(1, 2), 64,
                     [] {
                       if (blockIdx.y == 1) wait_at_different_barriers();
                     }),
            "deadlock in block (0,1,0): every thread waits or has exited"
            "\n  warp 0, lanes 0-31: named_barrier_sync at " +
                line(kFirstSyncLine) +
                ", barrier 3: 32 of 64 threads arrived"
                "\n  warp 1, lanes 0-15: __syncthreads at " +
                line(kFirstSyncLine + 2) +
                ", barrier 0: 16 of 64 threads arrived"
                "\n  warp 1, lanes 16-31: __syncwarp at " +
                line(kFirstSyncLine + 4) + " with mask 0xffffffff: lanes 0-15 missing");
}

TEST_F(Barriers, SyncthreadsIsBarrierZeroWithTheWholeBlock) {
  EXPECT_EQ(error_of(1, 64,
                     [] {
                       if (threadIdx.x < 32)
                         __syncthreads();
                       else
                         named_barrier_sync<0, 64>();
                     }),
            "");
  EXPECT_NE(error_of(1, 64,
                     [] {
                       if (threadIdx.x < 32)
                         __syncthreads();
                       else
                         named_barrier_sync<0, 32>();
                     })
                .find("threads disagree about barrier 0"),
            std::string::npos);
}

/// Warp 0 synchronises alone at barrier 0, where both warps meet afterwards.
constexpr int kSmallRoundLine = __LINE__ + 2;
__global__ void small_round_first(bool wait_between) {
  if (threadIdx.x < 32) named_barrier_sync<0, 32>();
  if (wait_between) named_barrier_sync<1, 64>();
  __syncthreads();
}

TEST_F(Barriers, AWarpThatMightHaveComeToTheRoundBeforeIsReported) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    sim::options().seed = seed;
    EXPECT_EQ(error_of(1, 64, [] { small_round_first(true); }), "");
    const std::string error = error_of(1, 64, [] { small_round_first(false); });
    EXPECT_NE(error.find("disagree about barrier 0"), std::string::npos) << error;
  }
  sim::options().seed = 0;
  const std::string error = error_of(1, 64, [] { small_round_first(false); });
  EXPECT_NE(error.find("__syncthreads at " + line(kSmallRoundLine + 2) +
                       " waits for the whole block, and named_barrier_sync at " + line(kSmallRoundLine) +
                       " has just waited for 32 threads, without warp 1. Nothing makes this warp wait until "
                       "warp 0 left the barrier"),
            std::string::npos)
      << error;
}

// Two warps wait only at every third tile; the third warp waits for both at every tile.
TEST_F(Barriers, WarpsThatArriveTwiceInARoundAreSuspects) {
  const auto error_with = [](bool waits) {
    return error_of(1, 96, [waits] {
      for (int tile = 0; tile < 6; ++tile)
        if (waits || threadIdx.x >= 64 || tile % 3 == 0)
          named_barrier_sync<1, 96>();
        else
          named_barrier_arrive<1, 96>();
    });
  };
  EXPECT_EQ(error_with(true), "");
  const std::string error = error_with(false);
  EXPECT_NE(error.find("where warps 0, 1 arrived at barrier 1 again before its round was complete"),
            std::string::npos)
      << error;
}

TEST_F(Barriers, MisuseIsReported) {
  const auto sync = [](int barrier, int threads) {
    return error_of(1, 64, [=] { sim::barrier_sync("sync", barrier, threads, {"k.cu", 7}); });
  };
  const std::string place = "\n  in block (0,0,0), thread (0,0,0), warp 0, lane 0";
  EXPECT_EQ(sync(16, 64), "sync at k.cu:7 names barrier 16: a block has barriers 0 to 15" + place);
  EXPECT_EQ(sync(-1, 64), "sync at k.cu:7 names barrier -1: a block has barriers 0 to 15" + place);
  EXPECT_EQ(sync(1, 33),
            "sync at k.cu:7 names 33 threads: give a multiple of 32, since whole warps arrive" + place);
  EXPECT_EQ(sync(1, 128), "sync at k.cu:7 waits for 128 threads: the block has 64" + place);
  EXPECT_EQ(error_of(1, 64,
                     [] {
                       sim::barrier_arrive("arrive", 1, sim::kWholeBlock, {"k.cu", 8});
                     }),
            "arrive at k.cu:8 names 0 threads: an arrival without a wait must give the number of threads "
            "that take part" +
                place);
}

TEST_F(Barriers, CountingAndPlainBarriersDoNotMeet) {
  EXPECT_NE(error_of(1, 64,
                     [] {
                       if (threadIdx.x < 32)
                         __syncthreads();
                       else
                         __syncthreads_count(1);
                     })
                .find("threads disagree about a barrier"),
            std::string::npos);
}

TEST_F(Barriers, OutsideAKernelThereAreNone) { EXPECT_THROW(__syncthreads(), sim::Error); }

}  // namespace
}  // namespace flashbook
