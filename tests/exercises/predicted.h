/// \file
/// Predictions: formulas in a problem's sizes. The grader has its own formulas and draws new sizes. Students'
/// tests have fixed sizes, and digests of the right numbers.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/exercises/exercise.h"

namespace flashbook::testing {

constexpr int kProblems = 8;  // number of problems in a student's test
// Enough in the grader's tests for a mistake to show under every seed.
constexpr int kGraded = 64;

/// A size of a problem, and its allowed values.
template <typename Problem>
struct Size {
  const char* name;
  double Problem::*size;
  std::vector<double> choices;
};

/// Returns the problem of the text, which is a Problem's default, followed by others that depend on the seed.
template <typename Problem>
std::vector<Problem> problems(const std::vector<Size<Problem>>& sizes, unsigned seed, int count) {
  std::seed_seq seeds{5u, seed};
  std::mt19937 random(seeds);
  std::vector<Problem> all(count);
  for (std::size_t i = 1; i < all.size(); ++i)
    for (const Size<Problem>& one : sizes) all[i].*one.size = one.choices[random() % one.choices.size()];
  return all;
}

/// " The sizes: tokens 1024 ..." of a problem.
template <typename Problem>
std::string described(const std::vector<Size<Problem>>& sizes, const Problem& problem) {
  std::ostringstream text;
  text << " The sizes:";
  for (const Size<Problem>& one : sizes) text << ' ' << one.name << ' ' << problem.*one.size;
  return text.str();
}

/// Returns the full name of the running test.
inline std::string this_test() {
  const ::testing::TestInfo& info = *::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info.test_suite_name()) + "." + info.name();
}

/// Returns the index of a number's grain; each grain is `tolerance` of its value wide.
inline int64_t grain(double value, double tolerance) {
  if (value == 0) return 0;
  return 4 * std::llround(std::log(std::abs(value)) / tolerance) + (value < 0 ? 1 : 2);
}

/// Six hexadecimal digits that identify the number expected by the running test for the problem of that
/// index. They confirm a right number without revealing it.
inline std::string digest(int64_t grain, std::size_t problem) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto mix = [&](uint64_t byte) { hash = (hash ^ (byte & 0xff)) * 1099511628211u; };
  for (const char c : this_test()) mix(uint64_t(c));
  mix(problem);
  for (int round = 0; round < 1000; ++round)
    for (int shift = 0; shift < 64; shift += 8) mix(uint64_t(grain) >> shift);
  char text[8];
  std::snprintf(text, sizeof text, "%06x", unsigned(hash >> 40));
  return text;
}

/// Checks a formula against digests of the right numbers for each of the problems() of seed 0.
template <typename Problem>
void expect_digests(const std::vector<Size<Problem>>& sizes, double (Problem::*predicted)() const,
                    double tolerance, std::string_view digests) {
  const std::vector<Problem> all = problems(sizes, 0, kProblems);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double got = observed((all[i].*predicted)());
    bool is_right = false;
    if (std::isfinite(got))
      for (const int beside : {-4, 0, 4})
        is_right |= digest(grain(got, tolerance) + beside, i) == digests.substr(6 * i, 6);
    if (is_right) continue;
    ADD_FAILURE() << (got == 0 ? "0: fill it in" : "not right")
                  << (i == 0 ? "" : ", though right for the sizes of the text") << "."
                  << described(sizes, all[i]);
    return;
  }
}

/// Checks a formula against `want` for each of the problems() of course_seed(), within `tolerance`, which by
/// default allows only rounding. A failure reports whether the number is too small or too large, and for
/// which sizes, but not the right number. With FLASHBOOK_PREDICTED_DIGESTS set, prints the argument of
/// expect_digests().
template <typename Problem>
void expect_predicted(const std::vector<Size<Problem>>& sizes, double (Problem::*predicted)() const,
                      double (*want)(const Problem&), double tolerance = 1e-6) {
  if (std::getenv("FLASHBOOK_PREDICTED_DIGESTS")) {
    const std::vector<Problem> all = problems(sizes, 0, kProblems);
    std::ostringstream line;
    line << "digests " << this_test() << ' ' << tolerance << ' ';
    for (std::size_t i = 0; i < all.size(); ++i) line << digest(grain(want(all[i]), tolerance), i);
    puts(line.str().c_str());
  }
  std::ostringstream complaint;
  bool is_right = true, is_first = true;
  for (const Problem& problem : problems(sizes, course_seed(), kGraded)) {
    const double got = observed((problem.*predicted)()), right = want(problem);
    if (is_right && !(std::abs(got - right) <= tolerance * std::abs(right))) {
      is_right = false;
      complaint << (got == 0      ? "0: fill it in"
                    : got < right ? "too small"
                                  : "too large")
                << (is_first ? "" : ", though right for the sizes of the text") << '.'
                << described(sizes, problem);
    }
    is_first = false;
  }
  if (!is_right) ADD_FAILURE() << complaint.str();
}

/// A test of the formula `member` of the file's `Problem`, whose sizes are kSizes. The braces that follow
/// hold the right formula, for a problem p; a fourth argument is the tolerance. A student's program only
/// records, and holds no formula that it could find and call: the grader compiles it with FLASHBOOK_RECORDS.
#ifdef FLASHBOOK_RECORDS
#define PREDICTION(suite, name, member, ...)                                                              \
  TEST(suite, name) {                                                                                     \
    for (const Problem& problem : problems(kSizes, course_seed(), kGraded)) observed((problem.member)()); \
  }                                                                                                       \
  template <typename>                                                                                     \
  double right_##name([[maybe_unused]] const Problem& p)
#else
#define PREDICTION(suite, name, member, ...)                                              \
  double right_##name(const Problem& p);                                                  \
  TEST(suite, name) {                                                                     \
    expect_predicted(kSizes, &Problem::member, &right_##name __VA_OPT__(, ) __VA_ARGS__); \
  }                                                                                       \
  double right_##name([[maybe_unused]] const Problem& p)
#endif

/// Compares predictions with digests of the right numbers; the grader's tests redefine it as nothing.
#ifndef DIGESTS
#define DIGESTS(suite, name, member, tolerance, digests)                              \
  TEST(suite, name) { expect_digests(kSizes, &Problem::member, tolerance, digests); } \
  static_assert(true)
#endif

}  // namespace flashbook::testing
