#define DIGESTS(...) static_assert(true)  // the tests below take their place
#include "tests/exercises/ch02-counts.cpp"

namespace flashbook::testing {
namespace {

double harmonic_number(double n) {
  double sum = 0;
  for (int j = 1; j <= n; ++j) sum += 1.0 / j;
  return sum;
}

PREDICTION(Counts, Maximum, maximum) { return p.first + (p.scores - 1) * p.step; }
PREDICTION(Counts, Sum, sum, 0.001) {
  double sum = 0;
  for (int j = 0; j < p.scores; ++j) sum += std::exp(-j * p.step);
  return sum;
}
PREDICTION(Counts, Rises, rises) { return p.scores - 1; }
PREDICTION(Counts, RisesInTiles, rises_in_tiles) { return p.scores / p.tile - 1; }
PREDICTION(Counts, Maxima, maxima, 0.001) { return harmonic_number(p.scores); }
PREDICTION(Counts, TilesWithAMaximum, tiles_with_a_maximum, 0.001) {
  return harmonic_number(p.scores / p.tile);
}
PREDICTION(Counts, MultiplicationsOfStep3, multiplications_of_step3) { return p.scores * p.head_dim; }
PREDICTION(Counts, MultiplicationsOfStep4, multiplications_of_step4) {
  return p.scores / p.tile * p.head_dim;
}

}  // namespace
}  // namespace flashbook::testing
