#include "chapters/04_flash_attention_2/exercises/budget.h"
#include "chapters/04_flash_attention_2/tuned.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using OurCut = fa2::Cut<192, 4, 2, false, 1>;

/// What a warp of `rows` reads for a tile: its rows of Q, and all of K and V.
constexpr double read_bytes(int rows) { return double(rows + 2 * OurCut::kKeys) * OurCut::kRowBytes; }

TEST(Budget, SharedMemory) { expect_predicted(fa2::kSharedBytes, OurCut::kSharedBytes); }
TEST(Budget, BlocksThatFit) { expect_predicted(fa2::kBlocks, 228 * 1024 / (OurCut::kSharedBytes + 1024)); }
TEST(Budget, RegistersOfO) {
  expect_predicted(fa2::kRegistersO,
                   double(sizeof(fa2::Blocks<OurCut::kRowBlocks, OurCut::kHeadDim / 8>)) / sizeof(float));
}
TEST(Budget, RegistersOfScores) {
  expect_predicted(fa2::kRegistersScores,
                   double(sizeof(fa2::Blocks<OurCut::kRowBlocks, OurCut::kKeys / 8>)) / sizeof(float));
}
TEST(Budget, RegistersAtMost) { expect_predicted(fa2::kRegistersAtMost, 255); }
TEST(Budget, Products) {
  expect_predicted(fa2::kProducts,
                   2.0 * (OurCut::kWarpRows / 16) * (OurCut::kKeys / 8) * (OurCut::kHeadDim / 16));
}
TEST(Budget, BytesThatAWarpReads) { expect_predicted(fa2::kReadBytes, read_bytes(OurCut::kWarpRows)); }
TEST(Budget, BytesThatAWarpOf16RowsReads) { expect_predicted(fa2::kReadBytesOf16, read_bytes(16)); }

}  // namespace
}  // namespace flashbook::testing
