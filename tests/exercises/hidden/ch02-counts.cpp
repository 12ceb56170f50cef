#include "chapters/02_online_softmax/exercises/counts.h"
#include "tests/exercises/predicted.h"

namespace flashbook::testing {
namespace {

using Problem = Counts;

double harmonic_number(double n) {
  double sum = 0;
  for (int j = 1; j <= n; ++j) sum += 1.0 / j;
  return sum;
}

const std::vector<Size<Problem>> kSizes = {{"scores", &Problem::scores, {16384, 32768, 49152, 131072}},
                                           {"tile", &Problem::tile, {16, 32, 64}},
                                           {"head_dim", &Problem::head_dim, {64, 96, 192, 256}},
                                           {"first", &Problem::first, {-4, -1, 2, 7}},
                                           {"step", &Problem::step, {0.125, 0.25, 1, 2}}};

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
