#include "chapters/07_backward/exercises/budget.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace backward;

constexpr double kDim = 128, kKeys = 128, kConsumers = 2, kThreads = 128, kTolerance = 0.01;

/// Shared memory with tiles of so many queries.
constexpr double shared_bytes(double queries) {
  const double keys = 2 * kKeys * kDim * 2, stage = 2 * queries * kDim * 2;
  const double dq = queries * kDim * 4, ds = queries * kKeys * 2;
  return keys + 2 * stage + dq + 2 * ds;
}
static_assert(shared_bytes(80) < 227 * 1024 && shared_bytes(128) > 227 * 1024, "80 queries fit, 128 do not");

/// Registers of a thread for S^T and dP^T.
constexpr double score_registers(double queries) { return 2 * (kKeys / kConsumers) * queries / kThreads; }

TEST(BackwardBudget, KeysAndValues) { expect_predicted(kKeyBytes, 2 * kKeys * kDim * 2, kTolerance); }
TEST(BackwardBudget, AStage) { expect_predicted(kStageBytes, 2 * 80 * kDim * 2, kTolerance); }
TEST(BackwardBudget, DqOfATile) { expect_predicted(kDqBytes, 80 * kDim * 4, kTolerance); }
TEST(BackwardBudget, DsOfATile) { expect_predicted(kDsBytes, 80 * kKeys * 2, kTolerance); }
TEST(BackwardBudget, AllOf80Queries) { expect_predicted(kSharedBytes, shared_bytes(80), kTolerance); }
TEST(BackwardBudget, AllOf128Queries) { expect_predicted(kSharedBytes128, shared_bytes(128), kTolerance); }
TEST(BackwardBudget, RegistersOfSums) {
  expect_predicted(kSumRegisters, 2 * (kKeys / kConsumers) * kDim / kThreads, kTolerance);
}
TEST(BackwardBudget, RegistersOfScoresOf80) {
  expect_predicted(kScoreRegisters80, score_registers(80), kTolerance);
}
TEST(BackwardBudget, RegistersOfScoresOf128) {
  expect_predicted(kScoreRegisters128, score_registers(128), kTolerance);
}
TEST(BackwardBudget, ClocksOfProducts) {
  expect_predicted(kProductClocks, 10 * 80 * kKeys * kDim / 4096, kTolerance);
}
TEST(BackwardBudget, BytesAddedAClock) {
  expect_predicted(kAddedBytesAClock, 80 * kDim * 4 / (10 * 80 * kKeys * kDim / 4096), kTolerance);
}

}  // namespace
}  // namespace flashbook::testing
