#include <algorithm>
#include <iterator>
#include <limits>

#include "chapters/02_online_softmax/exercises/counts.h"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

/// How often the maximum of kScores rises, in blocks of `size`, after the first block.
int rises(int size) {
  float row_max = *std::max_element(kScores, kScores + size);
  int count = 0;
  for (const float* block = kScores + size; block < std::end(kScores); block += size) {
    const float block_max = *std::max_element(block, block + size);
    count += block_max > row_max;
    row_max = std::max(row_max, block_max);
  }
  return count;
}

double harmonic_number(int n) {
  double sum = 0;
  for (int j = 1; j <= n; ++j) sum += 1.0 / j;
  return sum;
}

/// What the page asks for: within a thousandth. A count one too small, or a sum that stops early, is
/// wrong.
void expect_count(double predicted, double want) { expect_predicted(predicted, want, 0.001); }

const double kRowMax = *std::max_element(std::begin(kScores), std::end(kScores));

TEST(Counts, Maximum) { expect_count(kMaximum, kRowMax); }
TEST(Counts, Sum) {
  double sum = 0;
  for (float score : kScores) sum += std::exp(score - kRowMax);
  expect_count(kSum, sum);
}
TEST(Counts, Rises) { expect_count(kRises, rises(1)); }
TEST(Counts, RisesInBlocksOf4) { expect_count(kRisesInBlocksOf4, rises(4)); }
TEST(Counts, MaximaOf65536) { expect_count(kMaximaOf65536, harmonic_number(65536)); }
TEST(Counts, TilesWithAMaximum) { expect_count(kTilesWithAMaximum, harmonic_number(65536 / 64)); }
TEST(Counts, MultiplicationsOfStep3) { expect_count(kMultiplicationsOfStep3, 65536.0 * 128); }
TEST(Counts, MultiplicationsOfStep4) { expect_count(kMultiplicationsOfStep4, 65536.0 / 64 * 128); }

}  // namespace
}  // namespace flashbook::testing
