#include "chapters/05_flash_attention_3/exercises/budget.h"
#include "chapters/05_flash_attention_3/specialised.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

using namespace flash3;

template <int kKeys>
using Cut = Specialised<192, 2, kKeys, 4, true, true>;
template <int kKeys>
using Shared = SpecialisedShared<__nv_bfloat16, Cut<kKeys>>;
static_assert(sizeof(Shared<112>) <= 227 * 1024 && sizeof(Shared<128>) > 227 * 1024,
              "112 keys fit, and 16 more do not");

using OurCut = Cut<96>;
using OurShared = Shared<OurCut::kKeys>;
constexpr int kConsumers = OurCut::kConsumers, kRows = kConsumers * kRowsOfWarpgroup;
constexpr double kTolerance = 0.01;                        // less than from 232 registers to 236
constexpr double kScores = double(kRows) * OurCut::kKeys;  // of a tile, both consumers together

/// Of 4096 keys: every tile fills two stages, and stage 0 gets the first of them.
constexpr double fillings() {
  const int tiles = (4096 + OurCut::kKeys - 1) / OurCut::kKeys;
  return (2 * tiles + OurCut::kStages - 1) / OurCut::kStages;
}

TEST(Budget, MostKeys) { expect_predicted(kMostKeys, 112, kTolerance); }
TEST(Budget, BytesOfAStage) {
  expect_predicted(kStageBytes, sizeof(OurShared::pipeline.tile[0]), kTolerance);
}
TEST(Budget, SharedMemory) {
  expect_predicted(kSharedBytes, sizeof(OurShared::q) + sizeof(OurShared::pipeline.tile), kTolerance);
}
TEST(Budget, ArrivalsAtFull) { expect_predicted(kFullArrivals, 1, kTolerance); }
TEST(Budget, ArrivalsAtEmpty) {
  expect_predicted(kEmptyArrivals, kConsumers * kWarpsOfWarpgroup, kTolerance);
}
TEST(Budget, FillingsOfStage0) { expect_predicted(kFillings, fillings(), kTolerance); }
TEST(Budget, RegistersAtTheStart) {
  expect_predicted(kRegistersAtStart, 65536 / OurCut::kThreads / 8 * 8, kTolerance);
}
TEST(Budget, RegistersOfAConsumer) {
  expect_predicted(kRegistersOfConsumer, kConsumerRegisters<kConsumers>, kTolerance);
}
TEST(Budget, RegistersOfO) { expect_predicted(kRegistersO, OurCut::kHeadDim / 2, kTolerance); }
TEST(Budget, RegistersOfScores) { expect_predicted(kRegistersScores, OurCut::kKeys / 2, kTolerance); }
TEST(Budget, RegistersOfP) {
  expect_predicted(kRegistersP, sizeof(Probabilities<OurCut::kKeys>) / sizeof(uint32_t), kTolerance);
}
TEST(Budget, Products) {
  expect_predicted(kProducts, (OurCut::kHeadDim + OurCut::kKeys) / kDepth, kTolerance);
}
TEST(Budget, CyclesOfProducts) {
  expect_predicted(kProductCycles, 4 * kScores * OurCut::kHeadDim / 4096, kTolerance);
}
TEST(Budget, CyclesOfExponentials) { expect_predicted(kExponentialCycles, kScores / 16, kTolerance); }

}  // namespace
}  // namespace flashbook::testing
