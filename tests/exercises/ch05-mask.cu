#include "chapters/05_flash_attention_3/mask.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// One warpgroup takes its scores, dealt out as wgmma does, masks them and puts them back.
template <int kKeys>
__global__ void mask_a_tile(float* scores,  // [64, kKeys]
                            flash3::Problem problem, int first_query, int first_key) {
  float own[kKeys / 2];
  const auto place = [&](int i) {
    const MatrixPlace at = WgmmaM64<kKeys>::d(threadIdx.x, i);
    return at.row * kKeys + at.column;
  };
  for (int i = 0; i < kKeys / 2; ++i) own[i] = scores[place(i)];
  flash3::mask(own, problem, first_query + WgmmaM64<kKeys>::d(threadIdx.x, 0).row, first_key);
  for (int i = 0; i < kKeys / 2; ++i) scores[place(i)] = own[i];
}

class Mask : public HopperTest {};

/// The tile of queries from `first_query` on and keys from `first_key` on.
template <int kKeys>
void expect_masked(int seqlen_q, int seqlen_k, bool causal, int first_query, int first_key) {
  const flash3::Problem problem = {seqlen_q, seqlen_k, 1, 1, causal, 1.0f, {}};
  const std::vector<float> numbers = random_numbers(flash3::kRowsOfWarpgroup * kKeys, 7);
  const DeviceArray scores(DType::f32, numbers);
  run(mask_a_tile<kKeys>, dim3(1), dim3(flash3::kWarpgroup), 0, scores.as<float>(), problem, first_query,
      first_key);
  const std::vector<float> masked = scores.download();
  Comparison comparison;
  for (int i = 0; i < int(masked.size()); ++i) {
    // Rows beyond the last query see what that sees.
    const int query = std::min(first_query + i / kKeys, seqlen_q - 1), key = first_key + i % kKeys;
    const bool seen = key < seqlen_k && (!causal || key <= query + seqlen_k - seqlen_q);
    comparison.expect(masked[i], seen ? numbers[i] : -INFINITY, 0, [&] {
      return "row " + std::to_string(i / kKeys) + ", column " + std::to_string(i % kKeys) + " of the tile";
    });
  }
  comparison.finish();
}

TEST_F(Mask, OfATileThatAllRowsSee) { expect_masked<64>(64, 64, false, 0, 0); }
TEST_F(Mask, WhereTheKeysEndInsideATile) { expect_masked<64>(64, 85, false, 0, 64); }
TEST_F(Mask, OnTheDiagonal) { expect_masked<64>(128, 128, true, 64, 64); }
TEST_F(Mask, OfMoreKeysThanQueries) { expect_masked<64>(64, 91, true, 0, 0); }
TEST_F(Mask, OfRowsThatSeeNoKey) { expect_masked<64>(100, 60, true, 0, 0); }

}  // namespace
}  // namespace flashbook::testing
