#include "chapters/05_flash_attention_3/pipeline.cuh"
#include "tests/exercises/hopper_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

constexpr int kKeys = 32, kHeadDim = 64;  // of a tile

/// All tiles of a head go through the ring; each consumer adds up their rows. A block a head. The swizzle
/// does not matter to the sum of a row.
template <int kStages, int kConsumers>
__global__ void sums_of_rows(const __grid_constant__ CUtensorMap map,  // [heads, panels, tiles * kKeys, 64]
                             float* sums,                              // [heads, kConsumers, tiles * kKeys]
                             int tiles) {
  auto& pipeline = *dynamic_shared<flash3::Pipeline<__half, kKeys, kHeadDim, kStages>>();
  if (threadIdx.x == 0) {
    flash3::initialise(pipeline, kConsumers);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are ready
  flash3::PipelineState<kStages> state;
  const int warpgroup = threadIdx.x / flash3::kWarpgroup, thread = threadIdx.x % flash3::kWarpgroup;
  if (warpgroup == kConsumers) {
    for (int tile = 0; thread == 0 && tile < tiles; ++tile)
      flash3::fill(pipeline, state, map, tile * kKeys, {int(blockIdx.x), 0});
    return;
  }
  float* own = sums + (int64_t(blockIdx.x) * kConsumers + warpgroup) * tiles * kKeys;
  for (int tile = 0; tile < tiles; ++tile) {
    flash3::wait_full(pipeline, state);
    float sum = 0;
    for (int i = thread % 4; i < kHeadDim; i += 4)  // four threads a row
      sum += to_float(pipeline.tile[state.stage].element[0][thread / 4][i]);
    sum += __shfl_xor_sync(flash3::kWholeWarp, sum, 1);
    sum += __shfl_xor_sync(flash3::kWholeWarp, sum, 2);
    if (thread % 4 == 0) own[tile * kKeys + thread / 4] = sum;
    __syncwarp();  // all lanes have read: lane 0 arrives for them
    flash3::release(pipeline, state);
    state.advance();
  }
}

class Ring : public HopperTest {};

template <int kStages, int kConsumers>
void expect_sums(int heads, int tiles) {
  const int rows = tiles * kKeys;
  const std::vector<float> numbers = random_halves(std::size_t(heads) * rows * kHeadDim, 5);
  const DeviceArray tensor(DType::f16, numbers), sums(DType::f32, std::size_t(heads) * kConsumers * rows);
  run(sums_of_rows<kStages, kConsumers>, dim3(unsigned(heads)), dim3((kConsumers + 1) * flash3::kWarpgroup),
      sizeof(flash3::Pipeline<__half, kKeys, kHeadDim, kStages>),
      tile_map(tensor, heads, rows, kHeadDim, kKeys, Swizzle::b128), sums.as<float>(), tiles);
  const std::vector<float> got = sums.download();
  Comparison comparison;
  for (int head = 0; head < heads; ++head)
    for (int consumer = 0; consumer < kConsumers; ++consumer)
      for (int row = 0; row < rows; ++row) {
        double want = 0;
        for (int c = 0; c < kHeadDim; ++c) want += numbers[(std::size_t(head) * rows + row) * kHeadDim + c];
        comparison.expect(got[(std::size_t(head) * kConsumers + consumer) * rows + row], want, 1e-3, [&] {
          return "head " + std::to_string(head) + ", what consumer " + std::to_string(consumer) +
                 " read of row " + std::to_string(row % kKeys) + " of tile " + std::to_string(row / kKeys);
        });
      }
  comparison.finish();
}

TEST_F(Ring, AsManyTilesAsStages) { expect_sums<3, 1>(2, 3); }
TEST_F(Ring, OneTileMore) { expect_sums<3, 1>(1, 4); }
TEST_F(Ring, ManyRounds) { expect_sums<3, 1>(1, 20); }
TEST_F(Ring, TwoConsumers) { expect_sums<2, 2>(2, 9); }
TEST_F(Ring, InAnyOrderOfTheWarps) {
  for (int seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    const RandomWarpOrder order(seed);
    expect_sums<2, 2>(1, 7);
    if (HasFailure()) ADD_FAILURE() << "The warps ran in the order of seed " << seed << ".";
  }
}

}  // namespace
}  // namespace flashbook::testing
