#include "common/simulator/warp.h"

#include <set>
#include <string>
#include <vector>

#include "common/ptx/elect.h"
#include "tests/simulator/simulated.h"

namespace flashbook {
namespace {

constexpr unsigned kAll = 0xffffffff;

// Kernels whose warps break a rule. For correct ones see both_machines_test.cu.

constexpr int kShuffleLine = __LINE__ + 3;
__global__ void diverge() {
  if (threadIdx.x % 32 < 16)
    __shfl_xor_sync(kAll, 1, 1);
  else
    __ballot_sync(kAll, 1);
}

constexpr int kSyncwarpLine = __LINE__ + 3;
__global__ void miss_some_lanes() {
  if (threadIdx.x < 20)
    __syncwarp();
  else
    __syncthreads();
}

constexpr int kNotInMaskLine = __LINE__ + 1;
__global__ void not_in_the_mask() { __shfl_sync(0x0000ffff, 1, 0); }

constexpr int kAbsentLaneLine = __LINE__ + 4;

/// Lanes 0 to 15 shuffle among themselves, but read a lane outside the mask.
__global__ void read_outside_the_mask(int source) {
  if (threadIdx.x < 16) __shfl_sync(0x0000ffff, 1, source);
}

/// A full mask after half of the lanes have exited, as at a ragged edge. Reading from the remaining ones is
/// allowed.
__global__ void shuffle_after_exit(int* result, int lanes, int lane_mask) {
  if (int(threadIdx.x) >= lanes) return;
  result[threadIdx.x] = __shfl_xor_sync(kAll, int(threadIdx.x), lane_mask);
}

/// The two halves of a warp, each with its own mask, meet separately, in any order, and then together.
__global__ void halves(int* result) {
  const int lane = threadIdx.x;
  int sum = lane;
  if (lane < 16) {
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0x0000ffff, sum, step);
  } else {
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffff0000, sum, step);
  }
  result[lane] = sum + __shfl_xor_sync(kAll, sum, 16);
}

/// Lanes that wait for the whole warp do not keep the others from meeting first.
__global__ void half_meets_first(int* result) {
  const int lane = threadIdx.x;
  int value = lane;
  if (lane < 16) value = __shfl_xor_sync(0x0000ffff, value, 15);
  __syncwarp();
  result[lane] = value;
}

/// Like __syncthreads in a loop that some lanes leave early.
__global__ void leave_one_by_one(int* rounds) {
  for (int round = 0; round < int(threadIdx.x); ++round) {
    __syncwarp();
    ++rounds[threadIdx.x];
  }
}

using sim::error_of;
using sim::line;
using Warps = sim::SimulatorTest;

TEST_F(Warps, DivergenceIsReportedWithBothPlaces) {
  EXPECT_EQ(error_of(1, 64, diverge),
            "divergent warp: lane 16 is in __ballot_sync at " + line(kShuffleLine + 2) +
                " with mask 0xffffffff, but lanes 0-15 wait for it in __shfl_xor_sync at " +
                line(kShuffleLine) +
                " with mask 0xffffffff"
                "\n  in block (0,0,0), thread (16,0,0), warp 0, lane 16");
}

TEST_F(Warps, MissingLanesAreNamed) {
  EXPECT_EQ(error_of(1, 32, miss_some_lanes),
            "deadlock in block (0,0,0): every thread waits or has exited"
            "\n  warp 0, lanes 0-19: __syncwarp at " +
                line(kSyncwarpLine) +
                " with mask 0xffffffff: lanes 20-31 missing"
                "\n  warp 0, lanes 20-31: __syncthreads at " +
                line(kSyncwarpLine + 2) + ", barrier 0: 12 of 32 threads arrived");
}

TEST_F(Warps, CallerMustBeInTheMask) {
  EXPECT_EQ(error_of(1, 32, not_in_the_mask),
            "__shfl_sync at " + line(kNotInMaskLine) +
                " with mask 0x0000ffff is called by lane 16, which is not in the mask"
                "\n  in block (0,0,0), thread (16,0,0), warp 0, lane 16");
}

TEST_F(Warps, ShufflesMayNotReadOutsideTheMask) {
  EXPECT_EQ(error_of(1, 32, [] { read_outside_the_mask(15); }), "");
  EXPECT_EQ(error_of(1, 32, [] { read_outside_the_mask(16); }),
            "__shfl_sync at " + line(kAbsentLaneLine) +
                ": lane 0 reads lane 16, which is not in the mask or has exited"
                "\n  in block (0,0,0), thread (15,0,0), warp 0, lane 15");
}

TEST_F(Warps, ExitedLanesAreNotWaitedForButMayNotBeRead) {
  std::vector<int> result(32, -1);
  EXPECT_EQ(error_of(1, 32, [&] { shuffle_after_exit(result.data(), 24, 7); }), "");
  for (int lane = 0; lane < 24; ++lane) EXPECT_EQ(result[std::size_t(lane)], lane ^ 7);
  // A block of 24 threads has a warp with 24 lanes.
  EXPECT_EQ(error_of(1, 24, [&] { shuffle_after_exit(result.data(), 32, 7); }), "");
  EXPECT_NE(error_of(1, 32, [&] { shuffle_after_exit(result.data(), 24, 8); }).find("lane 16 reads lane 24"),
            std::string::npos);
}

TEST_F(Warps, PartsOfAWarpMeetAmongThemselves) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    sim::options().seed = seed;
    std::vector<int> result(32);
    sim::run_grid(1, 32, 0, [&] { halves(result.data()); });
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(result[std::size_t(lane)], 496) << lane;
    sim::run_grid(1, 32, 0, [&] { half_meets_first(result.data()); });
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(result[std::size_t(lane)], lane < 16 ? 15 - lane : lane);
  }
}

TEST_F(Warps, LanesMayLeaveALoopOneByOne) {
  std::vector<int> rounds(64);
  sim::run_grid(1, 64, 0, [&] { leave_one_by_one(rounds.data()); });
  for (int thread = 0; thread < 64; ++thread) EXPECT_EQ(rounds[std::size_t(thread)], thread);
}

TEST_F(Warps, WidthMustBeAPowerOfTwo) {
  for (int width : {0, 3, 33, 64, -4})
    EXPECT_NE(
        error_of(1, 32, [=] { __shfl_sync(kAll, 1, 0, width); }).find("has width " + std::to_string(width)),
        std::string::npos);
}

TEST_F(Warps, WhichLaneIsElectedDependsOnTheSeed) {
  std::set<unsigned> elected;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    sim::options().seed = seed;
    EXPECT_EQ(sim::error_of(1, 32,
                            [&] {
                              if (elect_one()) elected.insert(threadIdx.x);
                            }),
              "");
  }
  EXPECT_EQ(elected.size(), 4u);
}

TEST_F(Warps, TrapStopsTheLaunch) {
  constexpr int kLine = __LINE__ + 3;
  sim::expect_in(sim::error_of(2, 64,
                               [] {
                                 if (blockIdx.x == 1 && threadIdx.x == 33) __trap();
                               }),
                 "__trap at " + sim::line(kLine) + " stops the kernel\n  in block (1,0,0), thread (33,0,0)");
}

}  // namespace
}  // namespace flashbook
