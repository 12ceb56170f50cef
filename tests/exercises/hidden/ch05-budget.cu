#include "chapters/05_flash_attention_3/exercises/budget.h"
#include "chapters/05_flash_attention_3/step2_specialised.cuh"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using fa3::Budget;

constexpr double rows(const Budget& p) { return p.consumers * 64; }
constexpr double stage_bytes(const Budget& p) { return p.keys * 2 * p.head_dim; }
constexpr double shared_bytes(const Budget& p) {
  return rows(p) * 2 * p.head_dim + p.stages * stage_bytes(p);
}
constexpr double in_eights(double count) { return double(int(count) / 8 * 8); }
constexpr double registers_at_start(const Budget& p) { return in_eights(65536 / (128 * (p.consumers + 1))); }
constexpr double registers_of_consumer(const Budget& p) {
  return in_eights(((p.consumers + 1) * registers_at_start(p) - p.producer_registers) / p.consumers);
}

// The chapter's kernel, for the sizes of the text.
using Traits = fa3::SpecialisedTraits<192, 2, 96, 4, true, true>;
using OurShared = fa3::SpecialisedShared<__nv_bfloat16, Traits>;
static_assert(stage_bytes({}) == sizeof(OurShared::pipeline.tile[0]));
static_assert(shared_bytes({}) == sizeof(OurShared::q) + sizeof(OurShared::pipeline.tile));
static_assert(registers_at_start({}) == 65536 / Traits::kThreads / 8 * 8);
static_assert(registers_of_consumer({}) == fa3::kConsumerRegisters<2>);
static_assert(sizeof(fa3::Fragments<96>) / sizeof(uint32_t) == 96 / 4);

void expect_formula(double (Budget::*predicted)() const, double (*want)(const Budget&)) {
  expect_predicted<Budget>({{"head_dim", &Budget::head_dim, {64, 128, 160, 256}},
                            {"consumers", &Budget::consumers, {2, 3}},
                            {"stages", &Budget::stages, {2, 3, 4}},
                            {"keys", &Budget::keys, {48, 64, 80, 112, 128}},
                            {"seqlen_k", &Budget::seqlen_k, {1000, 2048, 5000, 8192}},
                            {"producer_registers", &Budget::producer_registers, {24, 32}}},
                           predicted, want);
}

TEST(Budget, MostKeys) {
  expect_formula(&Budget::most_keys, [](const Budget& p) {
    Budget larger = p;
    larger.keys = 16;
    while (shared_bytes(larger) <= 227 * 1024) larger.keys += 16;
    return larger.keys - 16;
  });
}
TEST(Budget, BytesOfAStage) { expect_formula(&Budget::stage_bytes, stage_bytes); }
TEST(Budget, SharedMemory) { expect_formula(&Budget::shared_bytes, shared_bytes); }
TEST(Budget, ArrivalsAtEmpty) {
  expect_formula(&Budget::empty_arrivals,
                 [](const Budget& p) { return p.consumers * fa3::kWarpsOfWarpgroup; });
}
TEST(Budget, FillingsOfStage0) {
  expect_formula(&Budget::fillings, [](const Budget& p) {  // one after another, K and V in turn
    double stage = 0, count = 0;
    for (double key = 0; key < p.seqlen_k; key += p.keys)
      for (int kind = 0; kind < 2; ++kind) {
        count += stage == 0;
        stage = stage + 1 == p.stages ? 0 : stage + 1;
      }
    return count;
  });
}
TEST(Budget, RegistersAtTheStart) { expect_formula(&Budget::registers_at_start, registers_at_start); }
TEST(Budget, RegistersOfAConsumer) { expect_formula(&Budget::registers_of_consumer, registers_of_consumer); }
TEST(Budget, RegistersOfO) {
  expect_formula(&Budget::registers_o, [](const Budget& p) { return p.head_dim / 2; });
}
TEST(Budget, RegistersOfScores) {
  expect_formula(&Budget::registers_scores, [](const Budget& p) { return p.keys / 2; });
}
TEST(Budget, RegistersOfP) {
  expect_formula(&Budget::registers_p, [](const Budget& p) { return p.keys / 4; });
}
TEST(Budget, Products) {
  expect_formula(&Budget::products, [](const Budget& p) { return (p.head_dim + p.keys) / fa3::kMmaK; });
}
TEST(Budget, CyclesOfProducts) {
  expect_formula(&Budget::product_cycles,
                 [](const Budget& p) { return 4 * rows(p) * p.keys * p.head_dim / 4096; });
}
TEST(Budget, CyclesOfExponentials) {
  expect_formula(&Budget::exponential_cycles, [](const Budget& p) { return rows(p) * p.keys / 16; });
}

}  // namespace
}  // namespace flashbook::testing
