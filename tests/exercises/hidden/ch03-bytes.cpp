#include "chapters/03_flash_attention_1/exercises/bytes.h"
#include "chapters/03_flash_attention_1/host/traffic.h"
#include "tests/exercises/predicted.h"
#include "tests/support/shapes.h"

namespace flashbook::testing {
namespace {

using fa1::Bytes;

Shape shape_of(const Bytes& p) {
  return make_shape(int(p.tokens), int(p.tokens), int(p.head_dim), false, DType::f16, int(p.heads),
                    int(p.kv_heads));
}

/// Shared memory of tiles of `rows` rows, without padding.
double tile_bytes(double head_dim, double rows) { return 6 * rows * head_dim + 4 * rows * rows; }

void expect_formula(double (Bytes::*predicted)() const, double (*want)(const Bytes&)) {
  expect_predicted<Bytes>({{"heads", &Bytes::heads, {8, 16, 24, 40, 64}},
                           {"kv_heads", &Bytes::kv_heads, {1, 2, 4, 8}},
                           {"tokens", &Bytes::tokens, {1024, 1536, 3072, 4096, 5120}},
                           {"head_dim", &Bytes::head_dim, {64, 96, 128, 192, 256}},
                           {"rows", &Bytes::rows, {16, 32, 64, 128}}},
                          predicted, want);
}

TEST(Bytes, Tile) {
  expect_formula(&Bytes::tile_bytes, [](const Bytes& p) { return tile_bytes(p.head_dim, p.rows); });
}
TEST(Bytes, LargestTile) {
  expect_formula(&Bytes::largest_tile, [](const Bytes& p) {
    double rows = 16;
    while (tile_bytes(p.head_dim, rows + 16) <= 227 * 1024) rows += 16;
    return rows;
  });
}
TEST(Bytes, Step1) {
  expect_formula(&Bytes::step1_bytes,
                 [](const Bytes& p) { return fa1::bytes_keys_outside(shape_of(p), int(p.rows)); });
}
TEST(Bytes, Step2) {
  expect_formula(&Bytes::step2_bytes, [](const Bytes& p) {
    return fa1::bytes_queries_outside(shape_of(p), int(p.rows), int(p.rows));
  });
}
TEST(Bytes, MemoryOfStep1) {
  expect_formula(&Bytes::step1_memory, [](const Bytes& p) {
    return double(shape_of(p).q_rows()) * (p.head_dim + 2) * sizeof(float);
  });
}
TEST(Bytes, MemoryOfChapter1) {
  expect_formula(&Bytes::chapter1_memory,
                 [](const Bytes& p) { return double(shape_of(p).q_rows()) * p.tokens * (4 + 2); });
}

}  // namespace
}  // namespace flashbook::testing
