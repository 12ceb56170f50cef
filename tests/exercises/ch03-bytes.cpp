// Sizes, and digests of the right numbers, which course/digests.py writes from the grader's formulas.
#include "chapters/03_flash_attention_1/exercises/bytes.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = fa1::Bytes;

const std::vector<Size<Problem>> kSizes = {{"heads", &Problem::heads, {8, 16, 24, 40, 64}},
                                           {"kv_heads", &Problem::kv_heads, {1, 2, 4, 8}},
                                           {"tokens", &Problem::tokens, {1024, 1536, 3072, 4096, 5120}},
                                           {"head_dim", &Problem::head_dim, {64, 96, 128, 192, 256}},
                                           {"rows", &Problem::rows, {16, 32, 64, 128}}};

DIGESTS(Bytes, Tile, tile_bytes, 1e-06, "37c7d11a79dc43032963a5baec05658cc2889ce2f4b2dc35");
DIGESTS(Bytes, LargestTile, largest_tile, 1e-06, "341aeb29931408790d6af5af20121ac3d5a1b03c273b57e1");
DIGESTS(Bytes, Step1, step1_bytes, 1e-06, "d658a76e7246f2363888125ac5aaec7b4781e3213099d23a");
DIGESTS(Bytes, Step2, step2_bytes, 1e-06, "501af923c320f6d009e1124f4d628bf19d8caa6148281635");
DIGESTS(Bytes, MemoryOfStep1, step1_memory, 1e-06, "29895450eae8e4b0a67d4e6c34eda1456be9f0e75dfd6462");
DIGESTS(Bytes, MemoryOfChapter1, chapter1_memory, 1e-06, "092cdc9da045633503acd09ae43c1788f1d81cdb0bc05e5c");

}  // namespace
}  // namespace flashbook::testing
