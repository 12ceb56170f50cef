#include "chapters/05_flash_attention_3/exercises/chunk_mask.cuh"
#include "common/ptx/wgmma_layout.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kRows = 64, kThreads = 128;  // of one warpgroup

/// One warpgroup loads scores in wgmma's layout, masks them and stores them.
template <int kKeys>
__global__ void mask_a_tile(float* scores,  // [kRows, kKeys]
                            fa3::ChunkedProblem problem, int first_query, int first_key) {
  float own[kKeys / 2];
  const auto place = [&](int i) {
    const MatrixPlace at = WgmmaM64<kKeys>::d(threadIdx.x, i);
    return at.row * kKeys + at.column;
  };
  for (int i = 0; i < kKeys / 2; ++i) own[i] = scores[place(i)];
  fa3::mask_chunks(own, problem, first_query + WgmmaM64<kKeys>::d(threadIdx.x, 0).row, first_key);
  for (int i = 0; i < kKeys / 2; ++i) scores[place(i)] = own[i];
}

class Mask : public HopperTest {};

/// Tests the tile that starts at `first_query` and `first_key`.
template <int kKeys>
void expect_masked(int seqlen_q, int seqlen_k, int chunk, int first_query, int first_key) {
  const std::vector<float> numbers = random_numbers(kRows * kKeys, 7);
  const DeviceArray scores(DType::f32, numbers);
  run(mask_a_tile<kKeys>, dim3(1), dim3(kThreads), 0, scores.as<float>(),
      fa3::ChunkedProblem{seqlen_q, seqlen_k, chunk}, first_query, first_key);
  const std::vector<float> masked = scores.download();
  Comparison comparison;
  for (int row = 0; row < std::min(kRows, seqlen_q - first_query); ++row)
    for (int column = 0; column < kKeys; ++column) {
      const int own = first_query + row + seqlen_k - seqlen_q, key = first_key + column;
      const bool seen = key <= own && key / chunk == own / chunk;
      comparison.expect(
          masked[row * kKeys + column], seen ? numbers[row * kKeys + column] : -INFINITY, 0, [&] {
            return "row " + std::to_string(row) + ", column " + std::to_string(column) + " of the tile";
          });
    }
  comparison.finish();
}

TEST_F(Mask, OfATileThatAllRowsSee) { expect_masked<64>(128, 128, 256, 64, 0); }
TEST_F(Mask, WhereAChunkBeginsInsideATile) { expect_masked<64>(128, 200, 100, 64, 64); }
TEST_F(Mask, OnTheDiagonal) { expect_masked<64>(128, 128, 24, 64, 64); }
TEST_F(Mask, OfMoreKeysThanQueries) { expect_masked<64>(64, 91, 40, 0, 0); }
TEST_F(Mask, OfRowsThatSeeNoKey) { expect_masked<64>(100, 60, 16, 0, 0); }

}  // namespace
}  // namespace flashbook::testing
