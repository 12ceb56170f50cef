/// \file
/// Races with the async proxy that no fault of tests/mutation causes, and the sectors that TMA moves. This
/// file is instrumented (flashbook_traced).
#include <string>
#include <vector>

#include "common/device/tensor_map.h"
#include "common/ptx/fence.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/tma.h"
#include "common/simulator/trace/trace.h"
#include "tests/simulator/simulated.h"
#include "tests/values.h"

namespace flashbook {
namespace {

/// The fault of a kernel.
enum class Wrong { nothing, no_fence, writes_the_tensor };

constexpr unsigned kThreads = 128, kRows = 32, kColumns = 32;
constexpr uint32_t kTileBytes = kRows * kColumns * 4;

/// Writes a tile in shared memory, or the tensor, and loads the tensor over the tile by TMA.
__global__ void write_and_load(const CUtensorMap& map, float* tensor, Wrong wrong) {
  auto* tile = dynamic_shared<float>();
  __shared__ uint64_t full;
  (wrong == Wrong::writes_the_tensor ? tensor : tile)[threadIdx.x] = 2;
  if (wrong != Wrong::no_fence) fence_proxy_async();
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

class TraceHopper : public sim::SimulatorTest {
 protected:
  std::string loads_over(Wrong wrong) {
    return sim::error_of(1, kThreads, kTileBytes, [&] { write_and_load(map_, tensor_.data(), wrong); });
  }

  Values<float> tensor_{std::vector<float>(kRows * kColumns, 1.0f)};
  CUtensorMap map_ = device::tensor_map({.dtype = DType::f32,
                                         .base = tensor_.data(),
                                         .size = {kColumns, kRows},
                                         .stride = {4 * kColumns},
                                         .box = {kColumns, kRows},
                                         .swizzle = Swizzle::none});
};

using sim::expect_in;

TEST_F(TraceHopper, TmaLoadsOverPlainStoresAfterAFence) {
  const std::string error = loads_over(Wrong::no_fence);
  expect_in(error, "the async proxy wrote at tma_load at trace_hopper_test.cu:");
  expect_in(error, "must call fence_proxy_async");
}

TEST_F(TraceHopper, TmaDoesNotSeePlainStoresToTheTensor) {
  expect_in(loads_over(Wrong::writes_the_tensor), "TMA does not see plain stores to global memory");
}

TEST_F(TraceHopper, TmaMovesSectors) {
  sim::take_trace();
  EXPECT_EQ(loads_over(Wrong::nothing), "");
  const sim::LaunchTrace launch = sim::take_trace().back();
  EXPECT_EQ(launch.bytes_requested_read, kTileBytes);
  EXPECT_EQ(launch.bytes_distinct_read, kTileBytes);
}

}  // namespace
}  // namespace flashbook
