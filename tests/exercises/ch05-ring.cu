#include "chapters/05_flash_attention_3/exercises/pair_ring.cuh"
#include "common/ptx/convert.h"
#include "tests/exercises/hopper_kernel.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

using fa3::kPairDim;
using fa3::kPairRows;
constexpr int kWarpgroup = 128;

/// Returns the sum of a row of a tile, computed by four threads. It does not depend on the swizzle.
__device__ float sum_of_row(const __half (&tile)[kPairRows][kPairDim]) {
  const int row = threadIdx.x % kWarpgroup / 4;
  float sum = 0;
  for (int i = threadIdx.x % 4; i < kPairDim; i += 4) sum += to_float(tile[row][i]);
  sum += __shfl_xor_sync(0xffffffff, sum, 1);
  return sum + __shfl_xor_sync(0xffffffff, sum, 2);
}

/// Sends all pairs of a head through the ring; each consumer sums their rows. One block per head; its last
/// warpgroup is the producer.
template <int kStages, int kConsumers>
__global__ void sums_of_rows(
    const __grid_constant__ CUtensorMap k_map,  // [1, heads, 1, pairs * kPairRows, 64]
    const __grid_constant__ CUtensorMap v_map,  // [1, heads, 1, pairs * kPairRows, 64]
    float* k_sums,                              // [heads, kConsumers, pairs * kPairRows]
    float* v_sums,                              // [heads, kConsumers, pairs * kPairRows]
    int pairs) {
  auto& ring = *dynamic_shared<fa3::PairRing<kStages>>();
  if (threadIdx.x == 0) fa3::initialise(ring, kConsumers * kWarpgroup / 32);
  __syncthreads();  // the barriers are initialised
  const int warpgroup = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  if (warpgroup == kConsumers) {
    for (int pair = 0; thread == 0 && pair < pairs; ++pair)
      fa3::fill(ring, pair, k_map, v_map, int(blockIdx.x));
    return;
  }
  const int64_t first = (int64_t(blockIdx.x) * kConsumers + warpgroup) * pairs * kPairRows + thread / 4;
  for (int pair = 0; pair < pairs; ++pair) {
    fa3::wait_for_k(ring, pair);
    const float k = sum_of_row(ring.k[pair % kStages]);
    fa3::wait_for_v(ring, pair);
    const float v = sum_of_row(ring.v[pair % kStages]);
    if (thread % 4 == 0) k_sums[first + pair * kPairRows] = k, v_sums[first + pair * kPairRows] = v;
    __syncwarp();  // all lanes have read
    fa3::release(ring, pair);
  }
}

class Ring : public HopperTest {};

template <int kStages, int kConsumers>
void expect_sums(int heads, int pairs) {
  const int rows = pairs * kPairRows;
  const auto count = std::size_t(heads) * kConsumers * rows;
  const std::vector<float> numbers[2] = {random_halves(std::size_t(heads) * rows * kPairDim, 5),
                                         random_halves(std::size_t(heads) * rows * kPairDim, 6)};
  const DeviceArray k(DType::f16, numbers[0]), v(DType::f16, numbers[1]), k_sums(DType::f32, count),
      v_sums(DType::f32, count);
  run(sums_of_rows<kStages, kConsumers>, dim3(unsigned(heads)), dim3((kConsumers + 1) * kWarpgroup),
      sizeof(fa3::PairRing<kStages>), tile_map(k, heads, rows, kPairDim, kPairRows, Swizzle::b128),
      tile_map(v, heads, rows, kPairDim, kPairRows, Swizzle::b128), k_sums.as<float>(), v_sums.as<float>(),
      pairs);
  const std::vector<float> got[2] = {k_sums.download(), v_sums.download()};
  Comparison comparison;
  for (std::size_t i = 0; i < count; ++i)
    for (int tensor = 0; tensor < 2; ++tensor) {
      const std::size_t head = i / rows / kConsumers, consumer = i / rows % kConsumers, row = i % rows;
      double want = 0;
      for (int c = 0; c < kPairDim; ++c) want += numbers[tensor][(head * rows + row) * kPairDim + c];
      comparison.expect(got[tensor][i], want, 1e-3, [&] {
        return "head " + std::to_string(head) + ", what consumer " + std::to_string(consumer) +
               " read of row " + std::to_string(row % kPairRows) + " of " + "KV"[tensor] + " of pair " +
               std::to_string(row / kPairRows);
      });
    }
  comparison.finish();
}

TEST_F(Ring, AsManyPairsAsStages) { expect_sums<3, 1>(2, 3); }
TEST_F(Ring, OnePairMore) { expect_sums<3, 1>(1, 4); }
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
