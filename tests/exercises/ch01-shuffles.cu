#include <algorithm>
#include <numeric>

#include "chapters/01_naive_attention/step2_tiled.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Shuffles : public MachineTest {};

__global__ void reduce(const float* values, float* maxima, float* sums) {
  const int thread = threadIdx.x;
  maxima[thread] = naive::warp_max(values[thread]);
  sums[thread] = naive::warp_sum(values[thread]);
}

/// What `reduce` leaves for two warps of values.
struct Reduced {
  explicit Reduced(const std::vector<float>& values) {
    const DeviceArray in(DType::f32, values), max_array(DType::f32, values.size()),
        sum_array(DType::f32, values.size());
    run(reduce, dim3(1), dim3(unsigned(values.size())), 0, in.as<float>(), max_array.as<float>(),
        sum_array.as<float>());
    maxima = max_array.download();
    sums = sum_array.download();
  }
  std::vector<float> maxima, sums;
};

std::string place(int thread) {
  return "warp " + std::to_string(thread / 32) + ", lane " + std::to_string(thread % 32);
}

TEST_F(Shuffles, TheMaximumInEveryLane) {
  Comparison comparison;
  for (int seed = 1; seed <= 20; ++seed) {  // each time another lane has it
    std::vector<float> values = random_numbers(64, seed);
    for (float& value : values) value -= 100;  // all below 0, so a maximum that begins at 0 shows
    const Reduced got(values);
    for (int thread = 0; thread < 64; ++thread) {
      const auto warp = values.begin() + thread / 32 * 32;
      comparison.expect(got.maxima[thread], *std::max_element(warp, warp + 32), 0,
                        [&] { return "the maximum in " + place(thread); });
    }
  }
  comparison.finish();
}

TEST_F(Shuffles, TheSumInEveryLane) {
  std::vector<float> values(64);
  for (int thread = 0; thread < 64; ++thread)
    values[thread] = float(thread * thread - 500);  // of both signs, and exact in every order
  const Reduced got(values);
  Comparison comparison;
  for (int thread = 0; thread < 64; ++thread) {
    const auto warp = values.begin() + thread / 32 * 32;
    comparison.expect(got.sums[thread], std::accumulate(warp, warp + 32, 0.0), 0,
                      [&] { return "the sum in " + place(thread); });
  }
  comparison.finish();
}

}  // namespace
}  // namespace flashbook::testing
