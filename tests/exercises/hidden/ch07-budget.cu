#include "chapters/07_backward/exercises/budget.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using backward::Budget;

constexpr double key_bytes(const Budget& p) { return 2 * p.keys * p.head_dim * 2; }
constexpr double stage_bytes(const Budget& p) { return 2 * p.queries * p.head_dim * 2; }
constexpr double dq_bytes(const Budget& p) { return p.queries * p.head_dim * 4; }
constexpr double ds_bytes(const Budget& p) { return p.queries * p.keys * 2; }
constexpr double shared_bytes(const Budget& p) {
  return key_bytes(p) + 2 * stage_bytes(p) + dq_bytes(p) + 2 * ds_bytes(p);
}
constexpr double product_clocks(const Budget& p) { return 10 * p.queries * p.keys * p.head_dim / 4096; }

void expect_formula(double (Budget::*predicted)() const, double (*want)(const Budget&)) {
  expect_predicted<Budget>({{"head_dim", &Budget::head_dim, {64, 96, 160, 192, 256}},
                            {"keys", &Budget::keys, {64, 96, 112}},
                            {"queries", &Budget::queries, {16, 32, 48, 64, 128}},
                            {"consumers", &Budget::consumers, {1, 4}}},
                           predicted, want);
}

TEST(BackwardBudget, KeysAndValues) { expect_formula(&Budget::key_bytes, key_bytes); }
TEST(BackwardBudget, AStage) { expect_formula(&Budget::stage_bytes, stage_bytes); }
TEST(BackwardBudget, DqOfATile) { expect_formula(&Budget::dq_bytes, dq_bytes); }
TEST(BackwardBudget, DsOfATile) { expect_formula(&Budget::ds_bytes, ds_bytes); }
TEST(BackwardBudget, All) { expect_formula(&Budget::shared_bytes, shared_bytes); }
TEST(BackwardBudget, MostQueries) {
  expect_formula(&Budget::most_queries, [](const Budget& p) {
    Budget larger = p;
    larger.queries = 16;
    while (shared_bytes(larger) <= 227 * 1024) larger.queries += 16;
    return larger.queries - 16;
  });
}
TEST(BackwardBudget, RegistersOfSums) {
  expect_formula(&Budget::sum_registers,
                 [](const Budget& p) { return p.keys / p.consumers * p.head_dim / 64; });
}
TEST(BackwardBudget, RegistersOfScores) {
  expect_formula(&Budget::score_registers,
                 [](const Budget& p) { return p.keys / p.consumers * p.queries / 64; });
}
TEST(BackwardBudget, ClocksOfProducts) { expect_formula(&Budget::product_clocks, product_clocks); }
TEST(BackwardBudget, BytesAddedAClock) {
  expect_formula(&Budget::added_bytes_a_clock,
                 [](const Budget& p) { return dq_bytes(p) / product_clocks(p); });
}

}  // namespace
}  // namespace flashbook::testing
