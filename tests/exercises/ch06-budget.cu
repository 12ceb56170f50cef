#include "chapters/06_fp8/attention.cuh"
#include "chapters/06_fp8/exercises/budget.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace fp8;

struct Cut : Fast<192, 2, 128, false> {
  static constexpr int kKeyStages = 3, kRawStages = 2, kTransposedStages = 3;
  static constexpr bool kStoreByTma = false;
};
using OurShared = Shared<Cut>;
constexpr int kStages = Cut::kKeyStages + Cut::kRawStages + Cut::kTransposedStages,
              kRows = 2 * kRowsOfWarpgroup;
constexpr double kStage = sizeof(OurShared::keys.tile[0]);
constexpr double kTolerance = 0.01;
constexpr double kScores = double(kRows) * Cut::kKeys;  // of a tile, both consumers together
static_assert(sizeof(OurShared) <= 227 * 1024 && sizeof(OurShared) + kStage > 227 * 1024,
              "8 stages fit, and one more does not");

TEST(Budget, BytesOfAStage) { expect_predicted(kStageBytes, kStage, kTolerance); }
TEST(Budget, MostStages) { expect_predicted(kMostStages, kStages, kTolerance); }
TEST(Budget, SharedMemory) {
  expect_predicted(kSharedBytes, sizeof(OurShared::q) + kStages * kStage, kTolerance);
}
TEST(Budget, ArrivalsAtFull) { expect_predicted(kTransposedFullArrivals, kTransposers, kTolerance); }
TEST(Budget, ArrivalsAtEmpty) {
  expect_predicted(kTransposedEmptyArrivals, Cut::kConsumers * kWarpsOfWarpgroup, kTolerance);
}
TEST(Budget, LoadsOfATransposer) {
  expect_predicted(kLoadsOfTransposer, kStage / (32 * 16) / kTransposers, kTolerance);
}
TEST(Budget, RegistersOfO) { expect_predicted(kRegistersO, Cut::kHeadDim / 2, kTolerance); }
TEST(Budget, RegistersOfScores) { expect_predicted(kRegistersScores, Cut::kKeys / 2, kTolerance); }
TEST(Budget, RegistersOfP) {
  expect_predicted(kRegistersP, sizeof(Fragments<Cut::kKeys>) / sizeof(uint32_t), kTolerance);
}
TEST(Budget, RegistersOfQ) {
  expect_predicted(kRegistersQ, sizeof(Fragments<Cut::kHeadDim>) / sizeof(uint32_t), kTolerance);
}
TEST(Budget, Products) { expect_predicted(kProducts, (Cut::kHeadDim + Cut::kKeys) / kDepth, kTolerance); }
TEST(Budget, CyclesOfProducts) {
  expect_predicted(kProductCycles, 4 * kScores * Cut::kHeadDim / 8192, kTolerance);
}
TEST(Budget, CyclesOfExponentials) { expect_predicted(kExponentialCycles, kScores / 16, kTolerance); }
TEST(Budget, CyclesOfSharedMemory) {
  expect_predicted(kSharedMemoryCycles, (2 + 2 + 2 * Cut::kConsumers) * kStage / 128, kTolerance);
}
TEST(Budget, Offset) { expect_predicted(kOffset, std::floor(std::log2(448.0)) - 3, kTolerance); }
TEST(Budget, LeastExponent) { expect_predicted(kLeastExponent, -6 - 5, kTolerance); }

}  // namespace
}  // namespace flashbook::testing
