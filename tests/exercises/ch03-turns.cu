#include "chapters/03_flash_attention_1/exercises/six_pieces.cuh"
#include "tests/exercises/exercise.h"
#include "tests/support/machine.h"

namespace flashbook::testing {
namespace {

class Turns : public MachineTest {};

void expect_right(int rows, int keys) {
  const std::vector<float> weights = random_numbers(std::size_t(rows) * keys, 1),
                           v = random_numbers(std::size_t(keys) * fa1::kTurnDims, 2);
  const DeviceArray weight_array(DType::f32, weights), v_array(DType::f32, v),
      o(DType::f32, std::size_t(rows) * fa1::kTurnDims);
  run(fa1::add_in_turns, dim3(unsigned(rows / fa1::kTurnRows)), dim3(32 * fa1::kTurnWarps), 0,
      weight_array.as<float>(), v_array.as<float>(), o.as<float>(), keys);
  const std::vector<float> got = o.download();
  Comparison comparison;
  for (int row = 0; row < rows; ++row)
    for (int dim = 0; dim < fa1::kTurnDims; ++dim) {
      double sum = 0;
      for (int key = 0; key < keys; ++key)
        sum += double(weights[std::size_t(row) * keys + key]) * v[std::size_t(key) * fa1::kTurnDims + dim];
      comparison.expect(got[std::size_t(row) * fa1::kTurnDims + dim], sum, 1e-4, [&] {
        return "row " + std::to_string(row) + ", dimension " + std::to_string(dim) + ", of piece " +
               std::to_string(dim / fa1::kPieceDims) + ",";
      });
    }
  comparison.finish();
}

TEST_F(Turns, OneKeyAWarp) { expect_right(8, 4); }
TEST_F(Turns, ManyKeys) { expect_right(8, 64); }
TEST_F(Turns, ThreeBlocks) { expect_right(24, 16); }

TEST_F(Turns, InAnyOrderOfTheWarps) {
  for (int seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    const RandomWarpOrder order(seed);
    expect_right(8, 12);
    if (HasFailure())
      ADD_FAILURE() << "The warps ran in the order of seed " << seed
                    << ". If the other tests pass, two warps added to one piece at the same time, or a "
                       "barrier is missing.";
  }
}

}  // namespace
}  // namespace flashbook::testing
