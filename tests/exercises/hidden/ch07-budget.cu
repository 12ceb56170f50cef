#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch07-budget.cu"

namespace flashbook::testing {
namespace {

constexpr double key_bytes(const Problem& p) { return 2 * p.keys * p.head_dim * 2; }
constexpr double stage_bytes(const Problem& p) { return 2 * p.queries * p.head_dim * 2; }
constexpr double dq_bytes(const Problem& p) { return p.queries * p.head_dim * 4; }
constexpr double ds_bytes(const Problem& p) { return p.queries * p.keys * 2; }
constexpr double shared_bytes(const Problem& p) {
  return key_bytes(p) + 2 * stage_bytes(p) + dq_bytes(p) + 2 * ds_bytes(p);
}
constexpr double product_clocks(const Problem& p) { return 10 * p.queries * p.keys * p.head_dim / 4096; }

PREDICTION(BackwardBudget, KeysAndValues, key_bytes) { return key_bytes(p); }
PREDICTION(BackwardBudget, AStage, stage_bytes) { return stage_bytes(p); }
PREDICTION(BackwardBudget, DqOfATile, dq_bytes) { return dq_bytes(p); }
PREDICTION(BackwardBudget, DsOfATile, ds_bytes) { return ds_bytes(p); }
PREDICTION(BackwardBudget, All, shared_bytes) { return shared_bytes(p); }
PREDICTION(BackwardBudget, MostQueries, most_queries) {
  Problem larger = p;
  larger.queries = 16;
  while (shared_bytes(larger) <= 227 * 1024) larger.queries += 16;
  return larger.queries - 16;
}
PREDICTION(BackwardBudget, RegistersOfSums, sum_registers) { return p.keys / p.consumers * p.head_dim / 64; }
PREDICTION(BackwardBudget, RegistersOfScores, score_registers) {
  return p.keys / p.consumers * p.queries / 64;
}
PREDICTION(BackwardBudget, ClocksOfProducts, product_clocks) { return product_clocks(p); }
PREDICTION(BackwardBudget, BytesAddedAClock, added_bytes_a_clock) { return dq_bytes(p) / product_clocks(p); }

}  // namespace
}  // namespace flashbook::testing
