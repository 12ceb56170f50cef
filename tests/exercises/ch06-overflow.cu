#include <algorithm>

#include "chapters/06_fp8/exercises/encoded_probabilities.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

constexpr int kKeys = 128;  // keys per tile

class Overflow : public HopperTest {};

/// Checks rows whose largest scores in successive tiles are `maxima`; the other scores are up to 14 lower.
void expect_encoded(const std::vector<float>& maxima) {
  const int rows = 3, tiles = int(maxima.size());
  std::vector<float> numbers = random_numbers(std::size_t(rows) * tiles * kKeys, 15, 4);
  for (int i = 0; i < int(numbers.size()); ++i) {
    const int row = i / (tiles * kKeys), tile = i / kKeys % tiles;
    const bool largest = i % kKeys == (37 + 50 * row) % kKeys;
    numbers[i] = maxima[tile] - (largest ? 0 : std::min(0.01f + std::abs(numbers[i]), 14.0f));
  }
  const DeviceArray scores(DType::f32, numbers), p(DType::e4m3, numbers.size()),
      units(DType::f32, std::size_t(rows) * tiles);
  run(fp8::encode_probabilities, dim3(rows), dim3(32), 0, scores.as<float>(), p.as<uint32_t>(),
      units.as<float>(), tiles);
  const std::vector<float> got = p.download(), unit = units.download();
  Comparison comparison;
  for (int row = 0; row < rows; ++row) {
    float largest = -INFINITY,
          kept = -INFINITY;  // the maximum so far, and as of the unit's last allowed change
    for (int tile = 0; tile < tiles; ++tile) {
      largest = std::max(largest, maxima[tile]);
      const int at = row * tiles + tile;
      if (largest - kept > 2)
        kept = largest;
      else
        comparison.expect(unit[at], unit[at - 1], 0, [&] {
          return "the unit of row " + std::to_string(row) + ", tile " + std::to_string(tile) +
                 ", whose maximum has risen by no more than 2^2,";
        });
      for (int key = 0; key < kKeys; ++key) {
        // Half a unit in the last of three bits, and 2^-12 of the maximum for subnormal numbers.
        const double want = std::exp2(double(numbers[at * kKeys + key]) - largest);
        comparison.expect(float(got[at * kKeys + key] * std::exp2(double(unit[at]) - largest)), want,
                          want * 0.0626 + 0x1p-16, [&] {
                            return "row " + std::to_string(row) + ", tile " + std::to_string(tile) +
                                   ", key " + std::to_string(key) + ": p times 2^unit, over 2^maximum,";
                          });
      }
    }
  }
  comparison.finish();
}

TEST_F(Overflow, OneTile) { expect_encoded({5}); }
TEST_F(Overflow, WhereTheMaximumFalls) { expect_encoded({5, 3, -2}); }
TEST_F(Overflow, WhereTheMaximumLeaps) { expect_encoded({5, 12, 30}); }
TEST_F(Overflow, WhereTheMaximumRisesALittle) { expect_encoded({5, 6, 4}); }
TEST_F(Overflow, WhereTheMaximumRisesAgainAndAgain) { expect_encoded({-3, -2.5f, -2, -1.5f, -1}); }
TEST_F(Overflow, WhereTheMaximumRisesMore) { expect_encoded({5, 8, 11}); }

}  // namespace
}  // namespace flashbook::testing
