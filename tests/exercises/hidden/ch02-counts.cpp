#include "chapters/02_online_softmax/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

double harmonic_number(double n) {
  double sum = 0;
  for (int j = 1; j <= n; ++j) sum += 1.0 / j;
  return sum;
}

void expect_exact(double (Counts::*predicted)() const, double (*want)(const Counts&),
                  double tolerance = 1e-6) {
  expect_predicted<Counts>({{"scores", &Counts::scores, {16384, 32768, 49152, 131072}},
                            {"tile", &Counts::tile, {16, 32, 64}},
                            {"head_dim", &Counts::head_dim, {64, 96, 192, 256}},
                            {"first", &Counts::first, {-4, -1, 2, 7}},
                            {"step", &Counts::step, {0.125, 0.25, 1, 2}}},
                           predicted, want, tolerance);
}

/// Within a thousandth: ln(n) + 0.577 is that near to a harmonic number.
void expect_near(double (Counts::*predicted)() const, double (*want)(const Counts&)) {
  expect_exact(predicted, want, 0.001);
}

TEST(Counts, Maximum) {
  expect_exact(&Counts::maximum, [](const Counts& p) { return p.first + (p.scores - 1) * p.step; });
}
TEST(Counts, Sum) {
  expect_near(&Counts::sum, [](const Counts& p) {
    double sum = 0;
    for (int j = 0; j < p.scores; ++j) sum += std::exp(-j * p.step);
    return sum;
  });
}
TEST(Counts, Rises) {
  expect_exact(&Counts::rises, [](const Counts& p) { return p.scores - 1; });
}
TEST(Counts, RisesInTiles) {
  expect_exact(&Counts::rises_in_tiles, [](const Counts& p) { return p.scores / p.tile - 1; });
}
TEST(Counts, Maxima) {
  expect_near(&Counts::maxima, [](const Counts& p) { return harmonic_number(p.scores); });
}
TEST(Counts, TilesWithAMaximum) {
  expect_near(&Counts::tiles_with_a_maximum,
              [](const Counts& p) { return harmonic_number(p.scores / p.tile); });
}
TEST(Counts, MultiplicationsOfStep3) {
  expect_exact(&Counts::multiplications_of_step3, [](const Counts& p) { return p.scores * p.head_dim; });
}
TEST(Counts, MultiplicationsOfStep4) {
  expect_exact(&Counts::multiplications_of_step4,
               [](const Counts& p) { return p.scores / p.tile * p.head_dim; });
}

}  // namespace
}  // namespace flashbook::testing
