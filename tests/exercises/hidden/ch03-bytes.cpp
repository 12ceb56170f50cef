#include "chapters/03_flash_attention_1/host/traffic.h"
#include "tests/support/specs.h"

#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch03-bytes.cpp"

namespace flashbook::testing {
namespace {

Spec spec_of(const Problem& p) {
  return make_spec(int(p.tokens), int(p.tokens), int(p.head_dim), false, DType::f16, int(p.heads),
                   int(p.kv_heads));
}

/// Returns the shared memory of tiles of `rows` rows, without padding.
double tile_bytes(double head_dim, double rows) { return 6 * rows * head_dim + 4 * rows * rows; }

PREDICTION(Bytes, Tile, tile_bytes) { return tile_bytes(p.head_dim, p.rows); }
PREDICTION(Bytes, LargestTile, largest_tile) {
  double rows = 16;
  while (tile_bytes(p.head_dim, rows + 16) <= 227 * 1024) rows += 16;
  return rows;
}
PREDICTION(Bytes, Step1, step1_bytes) { return fa1::bytes_keys_outside(spec_of(p), int(p.rows)); }
PREDICTION(Bytes, Step2, step2_bytes) {
  return fa1::bytes_queries_outside(spec_of(p), int(p.rows), int(p.rows));
}
PREDICTION(Bytes, MemoryOfStep1, step1_memory) {
  return double(spec_of(p).q_rows()) * (p.head_dim + 2) * sizeof(float);
}
PREDICTION(Bytes, MemoryOfChapter1, chapter1_memory) {
  return double(spec_of(p).q_rows()) * p.tokens * (4 + 2);
}

}  // namespace
}  // namespace flashbook::testing
