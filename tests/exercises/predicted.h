/// \file
/// Predictions: formulas of a problem's sizes, asked for sizes that whoever wrote them has not seen.
#pragma once
#include <cmath>
#include <random>
#include <sstream>
#include <vector>

#include "tests/exercises/exercise.h"

namespace flashbook::testing {

constexpr int kProblems = 8;  // that a formula is asked for

/// A size of a problem, and what it may be.
template <typename Problem>
struct Size {
  const char* name;
  double Problem::*size;
  std::vector<double> choices;
};

/// The problem of the text, which is a Problem's default, and others for each course_seed().
template <typename Problem>
std::vector<Problem> problems(const std::vector<Size<Problem>>& sizes) {
  std::seed_seq seeds{5u, course_seed()};
  std::mt19937 random(seeds);
  std::vector<Problem> all(kProblems);
  for (std::size_t i = 1; i < all.size(); ++i)
    for (const Size<Problem>& one : sizes) all[i].*one.size = one.choices[random() % one.choices.size()];
  return all;
}

/// Holds a formula against `want` for each of the problems(): within `tolerance` of it, by default exact but
/// for rounding. What fails is not told the number: too small or too large, and for which sizes.
template <typename Problem>
void expect_predicted(const std::vector<Size<Problem>>& sizes, double (Problem::*predicted)() const,
                      double (*want)(const Problem&), double tolerance = 1e-6) {
  std::ostringstream complaint;
  bool is_right = true, is_first = true;
  for (const Problem& problem : problems(sizes)) {
    const double got = observed((problem.*predicted)()), right = want(problem);
    if (is_right && !(std::abs(got - right) <= tolerance * std::abs(right))) {
      is_right = false;
      complaint << (got == 0      ? "0: fill it in"
                    : got < right ? "too small"
                                  : "too large")
                << (is_first ? "" : ", though right for the sizes of the text") << ". The sizes:";
      for (const Size<Problem>& one : sizes) complaint << ' ' << one.name << ' ' << problem.*one.size;
    }
    is_first = false;
  }
  if (!is_right) ADD_FAILURE() << complaint.str();
}

}  // namespace flashbook::testing
