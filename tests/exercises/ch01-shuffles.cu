#include <algorithm>

#include "chapters/01_naive_attention/exercises/two_rows.cuh"
#include "tests/exercises/exercise.h"

namespace flashbook::testing {
namespace {

class Shuffles : public MachineTest {};

__global__ void reduce(const float* scores, const float* keys, float* maxima, float* best, float* sums) {
  const int thread = threadIdx.x;
  const naive::Scored largest = naive::row_largest({scores[thread], int(keys[thread])});
  maxima[thread] = largest.score;
  best[thread] = float(largest.key);
  sums[thread] = naive::row_sum(scores[thread]);
}

/// The results of `reduce` for a block of scores. Keys are numbered from the last lane to the first.
struct Reduced {
  explicit Reduced(const std::vector<float>& scores) {
    const std::size_t count = scores.size();
    for (std::size_t thread = 0; thread < count; ++thread) keys.push_back(float(1000 - thread));
    const DeviceArray in(DType::f32, scores), key_array(DType::f32, keys), max_array(DType::f32, count),
        best_array(DType::f32, count), sum_array(DType::f32, count);
    run(reduce, dim3(1), dim3(unsigned(count)), 0, in.as<float>(), key_array.as<float>(),
        max_array.as<float>(), best_array.as<float>(), sum_array.as<float>());
    maxima = max_array.download();
    best = best_array.download();
    sums = sum_array.download();
  }
  std::vector<float> keys, maxima, best, sums;
};

std::string place(int thread) {
  return "warp " + std::to_string(thread / 32) + ", lane " + std::to_string(thread % 32);
}

/// Calls body(thread, others) for every thread; `others` are the threads of its row, every second lane of its
/// warp.
template <typename Body>
void for_each_thread(std::size_t count, Body body) {
  for (int thread = 0; thread < int(count); ++thread) {
    std::vector<int> others;
    for (int lane = thread % 2; lane < 32; lane += 2) others.push_back(thread / 32 * 32 + lane);
    body(thread, others);
  }
}

/// Checks the largest score, its key, or both, in every lane of each row.
void expect_largest(const std::vector<float>& scores, bool score, bool key) {
  const Reduced got(scores);
  Comparison comparison;
  for_each_thread(scores.size(), [&](int thread, const std::vector<int>& others) {
    const int best = *std::max_element(others.begin(), others.end(), [&](int a, int b) {
      return scores[a] < scores[b] || (scores[a] == scores[b] && got.keys[a] > got.keys[b]);
    });
    if (score)
      comparison.expect(got.maxima[thread], scores[best], 0, [&] { return "the score in " + place(thread); });
    if (key)
      comparison.expect(got.best[thread], got.keys[best], 0, [&] { return "the key in " + place(thread); });
  });
  comparison.finish();
}

/// Returns scores below 0, which expose a maximum that starts at 0.
std::vector<float> low_scores(unsigned seed) {
  std::vector<float> scores = random_numbers(64, seed);
  for (float& score : scores) score -= 100;
  return scores;
}

void expect_sums(const std::vector<float>& values) {  // exact in any order
  const Reduced got(values);
  Comparison comparison;
  for_each_thread(values.size(), [&](int thread, const std::vector<int>& others) {
    double sum = 0;
    for (int other : others) sum += values[other];
    comparison.expect(got.sums[thread], sum, 0, [&] { return "the sum in " + place(thread); });
  });
  comparison.finish();
}

TEST_F(Shuffles, TheLargestScoreInEveryLane) {
  for (unsigned seed = 1; seed <= 20; ++seed) expect_largest(low_scores(seed), true, false);
}

TEST_F(Shuffles, ItsKeyInEveryLane) {
  for (unsigned seed = 1; seed <= 20; ++seed) expect_largest(low_scores(seed), false, true);
}

TEST_F(Shuffles, OfEqualScoresTheSmallerKey) {
  std::vector<float> scores = random_numbers(64, 21);
  for (float& score : scores) score = std::round(score);
  expect_largest(scores, true, true);
}

TEST_F(Shuffles, TheSumInEveryLane) {
  std::vector<float> values(64);
  for (int thread = 0; thread < 64; ++thread) values[thread] = float(thread * thread - 500);  // both signs
  expect_sums(values);
}

}  // namespace
}  // namespace flashbook::testing
