#include "chapters/04_flash_attention_2/exercises/budget.h"
#include "chapters/04_flash_attention_2/step5_tuned.cuh"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using fa2::Budget;

constexpr double row_bytes(const Budget& p) { return 2 * p.head_dim; }
constexpr double shared_bytes(const Budget& p) {
  return (p.warps * p.queries + 2 * p.stages * p.keys) * row_bytes(p);
}
double blocks(const Budget& p) { return std::floor(228 * 1024 / (shared_bytes(p) + 1024)); }
constexpr double registers(const Budget& p, double columns) { return p.queries * columns / 32; }
constexpr double products(const Budget& p) { return 2 * (p.queries / 16) * (p.keys / 8) * (p.head_dim / 16); }

// The chapter's kernel, for the sizes of the text.
using OurTraits = fa2::KernelTraits<192, 4, 2, false, 1>;
static_assert(shared_bytes({}) == OurTraits::kSharedBytes);
static_assert(registers({}, 192) ==
              sizeof(fa2::Blocks<OurTraits::kRowBlocks, OurTraits::kHeadDim / 8>) / sizeof(float));
static_assert(registers({}, 64) ==
              sizeof(fa2::Blocks<OurTraits::kRowBlocks, OurTraits::kKeys / 8>) / sizeof(float));

void expect_formula(double (Budget::*predicted)() const, double (*want)(const Budget&)) {
  expect_predicted<Budget>({{"head_dim", &Budget::head_dim, {64, 96, 128, 160}},
                            {"warps", &Budget::warps, {2, 4, 8}},
                            {"queries", &Budget::queries, {16, 32}},
                            {"keys", &Budget::keys, {16, 32, 48, 64}},
                            {"stages", &Budget::stages, {1, 2, 3}}},
                           predicted, want);
}

TEST(Budget, SharedMemory) { expect_formula(&Budget::shared_bytes, shared_bytes); }
TEST(Budget, BlocksThatFit) { expect_formula(&Budget::blocks, blocks); }
TEST(Budget, RegistersOfO) {
  expect_formula(&Budget::registers_o, [](const Budget& p) { return registers(p, p.head_dim); });
}
TEST(Budget, RegistersOfScores) {
  expect_formula(&Budget::registers_scores, [](const Budget& p) { return registers(p, p.keys); });
}
TEST(Budget, RegistersAtMost) {
  expect_formula(&Budget::registers_at_most, [](const Budget& p) {
    return std::min(255.0, std::floor(65536 / (blocks(p) * p.warps * 32) / 8) * 8);
  });
}
TEST(Budget, Products) { expect_formula(&Budget::products, products); }
TEST(Budget, BytesThatAWarpReads) {
  expect_formula(&Budget::read_bytes,
                 [](const Budget& p) { return (p.queries + 2 * p.keys) * row_bytes(p); });
}
TEST(Budget, BytesThatABlockReadsWithHalfTheRowsAWarp) {
  expect_formula(&Budget::block_reads_of_half,
                 [](const Budget& p) { return p.warps * (p.queries + 4 * p.keys) * row_bytes(p); });
}

}  // namespace
}  // namespace flashbook::testing
