// What every definition of a feature must satisfy, whichever features there are.
#include <gtest/gtest.h>

#include "common/features/definition.h"
#include "tests/support/masks.h"

namespace flashbook {
namespace {

const Spec kPlain{{.batch = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 12, .seqlen_k = 12}};

TEST(Features, AreInTheProblemsThatTheyAreGivenTo) {
  EXPECT_TRUE(features_of(kPlain).empty());
  for (int bit = 0; bit < int(Feature::unknown); ++bit) {
    const Spec spec = testing::with_feature(Feature(bit), kPlain);
    SCOPED_TRACE(name_of(Feature(bit)));
    EXPECT_TRUE(features_of(spec).has(Feature(bit)));
    EXPECT_NE(spec, kPlain);
    EXPECT_NO_THROW(validate(spec));
    EXPECT_FALSE(definition_of(Feature(bit)).describe != nullptr && describe(spec) == describe(kPlain));
  }
}

TEST(Features, OfScoresHaveTheSlopeOfTheirFunction) {
  int functions = 0;
  for (int bit = 0; bit < int(Feature::unknown); ++bit) {
    const Definition& feature = definition_of(Feature(bit));
    EXPECT_EQ(feature.score != nullptr, feature.score_in_float != nullptr) << name_of(Feature(bit));
    if (feature.score == nullptr) continue;
    ++functions;
    const Spec spec = testing::with_feature(Feature(bit), kPlain);
    for (const double score : {-20.0, -1.5, 0.0, 0.25, 3.0, 40.0})
      for (int key = 0; key < 12; ++key) {
        const Pair pair{.batch = 1, .head = 2, .query = 5, .key = key, .distance = key - 5, .sequence = 1};
        const auto at = [&](double x) { return feature.score(spec, pair, x); };
        constexpr double kStep = 1e-5;
        const double slope = (at(score + kStep).score - at(score - kStep).score) / (2 * kStep);
        EXPECT_NEAR(at(score).slope, slope, 1e-8) << name_of(Feature(bit)) << " at " << score;
        EXPECT_NEAR(feature.score_in_float(spec, pair, float(score)).score, at(score).score, 1e-5);
      }
  }
  EXPECT_GT(functions, 0);
}

}  // namespace
}  // namespace flashbook
