#include "chapters/00_the_machine/exercises/neighbours.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Neighbours : public MachineTest {};

void expect_sums(int count, int threads) {
  const std::vector<float> numbers = random_numbers(std::size_t(count), 1);
  const DeviceArray from(DType::f32, numbers), to(DType::f32, numbers.size());
  run(machine::add_neighbours, dim3(unsigned(ceil_div(count, threads))), dim3(unsigned(threads)), 0,
      from.as<float>(), count, to.as<float>());
  const std::vector<float> got = to.download();
  Comparison comparison;
  for (int i = 0; i < count; ++i) {
    double want = 0;
    for (int j = std::max(i - 1, 0); j <= std::min(i + 1, count - 1); ++j) want += numbers[std::size_t(j)];
    comparison.expect(got[std::size_t(i)], want, 1e-5, [&] { return "element " + std::to_string(i); });
  }
  comparison.finish();
}

TEST_F(Neighbours, OfBlocksOfOneWarp) { expect_sums(128, 32); }
TEST_F(Neighbours, OfBlocksOfEightWarps) { expect_sums(512, 256); }
TEST_F(Neighbours, WhereTheArrayEndsInsideABlock) {
  expect_sums(300, 128);
  expect_sums(20, 32);
}
TEST_F(Neighbours, OfOneElement) { expect_sums(1, 32); }

}  // namespace
}  // namespace flashbook::testing
