#include <memory>

#include "chapters/02_online_softmax/exp2.h"
#include "chapters/02_online_softmax/host/chapter.h"
#include "chapters/02_online_softmax/step2_online_softmax.h"
#include "chapters/02_online_softmax/step5_register_blocks.h"
#include "tests/chapters/forward.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kOnlineSoftmax;
const Operation operation_under_test = Operation::forward;
const Chapter* const chapter_before = kOnlineSoftmaxBefore;

namespace {

/// Returns the state of a row or of a part of it, computed at once.
SoftmaxState state_of(std::span<const float> scores) {
  std::vector<float> copy(scores.begin(), scores.end());
  return safe_softmax(copy);
}

std::vector<float> random_scores(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 8);
  std::vector<float> scores(count);
  for (float& score : scores) score = normal(random);
  return scores;
}

void expect_same(const SoftmaxState& a, const SoftmaxState& b) {
  EXPECT_EQ(a.row_max, b.row_max);
  EXPECT_NEAR(a.row_sum, b.row_sum, 2e-6f * b.row_sum);
}

TEST(OnlineSoftmax, TheWorkedExample) {
  SoftmaxState state = state_of(std::vector{2.0f, 5.0f});
  EXPECT_EQ(state.row_max, 5);
  EXPECT_NEAR(state.row_sum, 1 + std::exp(-3.0), 1e-6);
  merge(state, state_of(std::vector{3.0f}));
  EXPECT_EQ(state.row_max, 5);
  EXPECT_NEAR(state.row_sum, 1 + std::exp(-3.0) + std::exp(-2.0), 1e-6);
}

/// Returns a tile in which every query sees a different number of keys, the first ones none.
std::unique_ptr<TransposedTiles<64>> some_tiles() {
  auto tiles = std::make_unique<TransposedTiles<64>>();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (auto* tile : {&tiles->q, &tiles->k, &tiles->v, &tiles->o})
    for (auto& row : *tile)
      for (float& element : row) element = normal(random);
  for (int query = 0; query < kQueriesPerTask; ++query) {
    tiles->visible[query] = std::max(0, query - 3);
    tiles->row_max[query] = query < 2 ? kMinusInfinity : normal(random);
    tiles->row_sum[query] = query < 2 ? 0 : 1;
  }
  for (auto& row : tiles->o) row[0] = row[1] = 0;  // consistent with row_sum: nothing was summed
  return tiles;
}

TEST(RegisterBlocks, EveryWidthOfVectorsGivesTheSame) {
  const auto attend = [](auto run) {
    auto tiles = some_tiles();
    run([&]<typename Unit>() __attribute__((always_inline)) {
      attend_to_tile<Unit>(*tiles, &tiles->k[0][0], &tiles->v[0][0], true, 0.3f);
    });
    return tiles;
  };
  const auto narrow = attend([](const auto& body) { vectors::run_with_4_lanes(body); });
  EXPECT_EQ(narrow->o[5][0], 0);  // a query that sees no key
  EXPECT_EQ(narrow->row_sum[0], 0);
  const auto expect_near = [&](const TransposedTiles<64>& wide) {
    for (int query = 0; query < kQueriesPerTask; ++query) {
      ASSERT_NEAR(wide.row_sum[query], narrow->row_sum[query], 2e-6f * narrow->row_sum[query]) << query;
      for (int d = 0; d < 64; ++d) ASSERT_NEAR(wide.o[d][query], narrow->o[d][query], 2e-5f) << query;
    }
  };
  expect_near(*attend([](const auto& body) { with_widest_vectors(body); }));
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "no AVX2 here";
  expect_near(*attend([](const auto& body) { vectors::run_with_8_lanes(body); }));
#endif
}

TEST(OnlineSoftmax, AnyTreeOfMergesIsTheWholeRow) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> scores = random_scores(64, round);
    std::vector<SoftmaxState> parts;
    for (float score : scores) parts.push_back({.row_max = score, .row_sum = 1});
    while (parts.size() > 1) {  // two random parts become one
      std::shuffle(parts.begin(), parts.end(), random);
      const SoftmaxState last = parts.back();
      parts.pop_back();
      merge(parts.back(), last);
    }
    expect_same(parts[0], state_of(scores));
  }
}

TEST(OnlineSoftmax, FactorsRescaleWhatWasSummedUnderTheOldMaximum) {
  SoftmaxState state;
  update(state, 1.0f);
  const Factors up = update(state, 3.0f), down = update(state, 2.0f);
  EXPECT_FLOAT_EQ(up.correction, std::exp(-2.0f));
  EXPECT_EQ(up.weight, 1);
  EXPECT_EQ(down.correction, 1);
  EXPECT_FLOAT_EQ(down.weight, std::exp(-1.0f));
}

TEST(OnlineSoftmax, MaskedScoresAddNothingAndMakeNoNaN) {
  SoftmaxState state;
  const Factors nothing = update(state, kMinusInfinity);
  EXPECT_EQ(nothing.correction, 1);
  EXPECT_EQ(nothing.weight, 0);
  EXPECT_EQ(state.row_sum, 0);
  EXPECT_EQ(state.log_sum_exp(), kMinusInfinity);
  update(state, 7.0f);
  update(state, kMinusInfinity);
  EXPECT_EQ(state.row_max, 7);
  EXPECT_EQ(state.row_sum, 1);
}

TEST(OnlineSoftmax, HugeScoresDoNotOverflow) {
  SoftmaxState state;
  for (float score : {-1e4f, 1e4f, 0.0f, 1e4f}) update(state, score);
  EXPECT_EQ(state.row_max, 1e4f);
  EXPECT_EQ(state.row_sum, 2);
}

TEST(Exp2, IsWithinItsStatedError) {
  double worst = 0;
  for (double exact_x = -126; exact_x <= 0; exact_x += 1.0 / 8192) {
    const float x = float(exact_x) * (1 + 1e-7f);  // off the grid of exact results
    if (x < -126) continue;
    worst = std::max(worst, std::abs(exp2_fast(x) / std::exp2(double(x)) - 1));
  }
  EXPECT_LE(worst, 1e-7);
  EXPECT_GT(worst, 0);
}

TEST(Exp2, IsZeroBelowTheSmallestNormalNumber) {
  for (float x :
       {-126.01f, -127.0f, -150.0f, -1e4f, -1e30f, -std::numeric_limits<float>::max(), kMinusInfinity})
    EXPECT_EQ(exp2_fast(x), 0) << x;
}

}  // namespace
}  // namespace flashbook::testing
