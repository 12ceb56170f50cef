// Not handed out: what these tests ask is in their names, which students see, and no more.
#include "tests/exercises/ch01-shuffles.cu"

namespace flashbook::testing {
namespace {

TEST_F(Shuffles, WhereAllLanesButOneSawNothing) {
  Comparison comparison;
  for (int lane = 0; lane < 32; ++lane) {
    std::vector<float> values(32, -INFINITY);
    values[std::size_t(lane)] = -5;
    const Reduced got(values);
    for (int thread = 0; thread < 32; ++thread)
      comparison.expect(got.maxima[std::size_t(thread)], -5, 0,
                        [&] { return "the maximum in " + place(thread); });
  }
  comparison.finish();
}

TEST_F(Shuffles, OfEightWarps) {
  std::vector<float> values(256);
  for (int thread = 0; thread < 256; ++thread) values[std::size_t(thread)] = float(1 << (thread % 23));
  const Reduced got(values);
  Comparison comparison;
  for (int thread = 0; thread < 256; ++thread) {
    const auto warp = values.begin() + thread / 32 * 32;
    comparison.expect(got.sums[std::size_t(thread)], std::accumulate(warp, warp + 32, 0.0), 0,
                      [&] { return "the sum in " + place(thread); });
  }
  comparison.finish();
}

}  // namespace
}  // namespace flashbook::testing
