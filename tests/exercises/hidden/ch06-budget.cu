#include "chapters/06_fp8/exercises/budget.h"
#include "chapters/06_fp8/step1_attention.cuh"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using fp8::Budget;

constexpr double scores(const Budget& p) { return p.consumers * 64 * p.keys; }  // of all consumers
constexpr double stage_bytes(const Budget& p) { return p.keys * p.head_dim; }
constexpr double shared_bytes(const Budget& p, double stages) {
  return p.consumers * 64 * p.head_dim + stages * stage_bytes(p);
}
constexpr double most_stages(const Budget& p) {
  double stages = 0;
  while (shared_bytes(p, stages + 1) <= 227 * 1024) ++stages;
  return stages;
}

// The chapter's kernel, for the sizes of the text.
struct Traits : fp8::KernelTraits<192, 2, 128, false> {
  static constexpr int kKeyStages = 3, kRawStages = 2, kTransposedStages = 3;
  static constexpr bool kStoreByTma = false;
};
using OurShared = fp8::Shared<Traits>;
static_assert(stage_bytes({}) == sizeof(OurShared::keys.tile[0]));
static_assert(most_stages({}) == Traits::kKeyStages + Traits::kRawStages + Traits::kTransposedStages);
static_assert(sizeof(OurShared) <= 227 * 1024 && sizeof(OurShared) + stage_bytes({}) > 227 * 1024);
static_assert(sizeof(fp8::Fragments<Traits::kKeys>) / sizeof(uint32_t) == 128 / 8);
static_assert(sizeof(fp8::Fragments<Traits::kHeadDim>) / sizeof(uint32_t) == 192 / 8);
static_assert(fp8::kTransposers == Budget{}.transposers);

void expect_formula(double (Budget::*predicted)() const, double (*want)(const Budget&)) {
  expect_predicted<Budget>({{"head_dim", &Budget::head_dim, {64, 96, 128, 160}},
                            {"keys", &Budget::keys, {32, 64, 96, 160}},
                            {"consumers", &Budget::consumers, {1, 3, 4}},
                            {"transposers", &Budget::transposers, {1, 3, 4}},
                            {"rise", &Budget::rise, {0, 1, 2, 4, 5}}},
                           predicted, want);
}

TEST(Budget, BytesOfAStage) { expect_formula(&Budget::stage_bytes, stage_bytes); }
TEST(Budget, MostStages) { expect_formula(&Budget::most_stages, most_stages); }
TEST(Budget, SharedMemory) {
  expect_formula(&Budget::shared_bytes, [](const Budget& p) { return shared_bytes(p, most_stages(p)); });
}
TEST(Budget, ArrivalsAtFull) {
  expect_formula(&Budget::transposed_full_arrivals, [](const Budget& p) { return p.transposers; });
}
TEST(Budget, ArrivalsAtEmpty) {
  expect_formula(&Budget::transposed_empty_arrivals, [](const Budget& p) { return p.consumers * 4; });
}
TEST(Budget, LoadsOfATransposer) {
  expect_formula(&Budget::loads_of_transposer,
                 [](const Budget& p) { return stage_bytes(p) / (32 * 16) / p.transposers; });
}
TEST(Budget, RegistersOfO) {
  expect_formula(&Budget::registers_o, [](const Budget& p) { return p.head_dim / 2; });
}
TEST(Budget, RegistersOfScores) {
  expect_formula(&Budget::registers_scores, [](const Budget& p) { return p.keys / 2; });
}
TEST(Budget, RegistersOfP) {
  expect_formula(&Budget::registers_p, [](const Budget& p) { return p.keys / 8; });
}
TEST(Budget, RegistersOfQ) {
  expect_formula(&Budget::registers_q, [](const Budget& p) { return p.head_dim / 8; });
}
TEST(Budget, Products) {
  expect_formula(&Budget::products, [](const Budget& p) { return (p.head_dim + p.keys) / fp8::kMmaK; });
}
TEST(Budget, CyclesOfProducts) {
  expect_formula(&Budget::product_cycles, [](const Budget& p) { return 4 * scores(p) * p.head_dim / 8192; });
}
TEST(Budget, CyclesOfExponentials) {
  expect_formula(&Budget::exponential_cycles, [](const Budget& p) { return scores(p) / 16; });
}
TEST(Budget, CyclesOfSharedMemory) {
  expect_formula(&Budget::shared_memory_cycles,
                 [](const Budget& p) { return (2 + 2 + 2 * p.consumers) * stage_bytes(p) / 128; });
}
TEST(Budget, Offset) {
  expect_formula(&Budget::offset, [](const Budget& p) { return std::floor(std::log2(448.0)) - p.rise; });
}
TEST(Budget, LeastExponent) {
  expect_formula(&Budget::least_exponent, [](const Budget& p) { return p.rise - 14; });
}

}  // namespace
}  // namespace flashbook::testing
