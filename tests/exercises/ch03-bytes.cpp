#include "chapters/03_flash_attention_1/exercises/bytes.h"
#include "chapters/03_flash_attention_1/traffic.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

const Shape kShape = {.batch = 1,
                      .heads = 32,
                      .kv_heads = 8,
                      .seqlen_q = 2048,
                      .seqlen_k = 2048,
                      .head_dim = 64,
                      .dtype = DType::f16,
                      .scale = default_scale(64)};

/// Shared memory of tiles of `rows` rows, without padding.
double tile_bytes(int rows) { return 6.0 * rows * kShape.head_dim + 4.0 * rows * rows; }

constexpr double kTolerance = 0.001;  // counts are exact

double largest_tile() {
  int rows = 16;
  while (tile_bytes(rows + 16) <= 227 * 1024) rows += 16;
  return rows;
}

TEST(Bytes, Tile) { expect_predicted(flash1::kTileBytes, tile_bytes(64), kTolerance); }
TEST(Bytes, LargestTile) { expect_predicted(flash1::kLargestTile, largest_tile(), kTolerance); }
TEST(Bytes, Step1) {
  expect_predicted(flash1::kStep1Bytes, flash1::bytes_keys_outside(kShape, 64), kTolerance);
}
TEST(Bytes, Step2) {
  expect_predicted(flash1::kStep2Bytes, flash1::bytes_queries_outside(kShape, 64, 64), kTolerance);
}
TEST(Bytes, Step2With128Rows) {
  expect_predicted(flash1::kStep2BytesOf128, flash1::bytes_queries_outside(kShape, 128, 128), kTolerance);
}
TEST(Bytes, MemoryOfStep1) {
  expect_predicted(flash1::kStep1Memory, double(kShape.q_rows()) * (kShape.head_dim + 2) * sizeof(float),
                   kTolerance);
}
TEST(Bytes, MemoryOfChapter1) {
  expect_predicted(flash1::kChapter1Memory, double(kShape.q_rows()) * kShape.seqlen_k * (4 + 2), kTolerance);
}

}  // namespace
}  // namespace flashbook::testing
