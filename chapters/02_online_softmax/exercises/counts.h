/// \file
/// Exercise ch02-counts: how often the maximum moves, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook {

// A row of scores is cut into tiles of `tile` scores; `tile` divides `scores`. In the first case, they
// ascend: the first score is `first`, and each is `step` larger than the previous one. In the second case,
// they are all different and in random order.
//
// Each function is a formula in these sizes. `try` calls it with the sizes below and with others, and the
// grader with sizes that are not published. Sizes are double, so a quotient keeps its fraction; std::floor
// and std::ceil round it. Functions may call those above them.
struct Counts {
  double scores = 65536, tile = 64, head_dim = 128, first = 3, step = 0.5;

  // BEGIN EXERCISE ch02-counts: how often the maximum moves
  // The ascending row: its maximum m, and its sum l, relative to that maximum.
  double maximum() const { return 0; }
  double sum() const { return 0; }
  // One score at a time: how often does the maximum rise after the first score?
  double rises() const { return 0; }
  // One tile at a time: how often does it rise after the first tile?
  double rises_in_tiles() const { return 0; }

  // The row in random order: how many of its scores, including the first, are larger than all scores before
  // them? Give the expected number.
  double maxima() const { return 0; }
  // How many of the row's tiles, including the first, have a new maximum?
  double tiles_with_a_maximum() const { return 0; }
  // How many multiplications does step 3 spend on correcting O, for this one row?
  double multiplications_of_step3() const { return 0; }
  // And how many does step 4 spend?
  double multiplications_of_step4() const { return 0; }
  // END EXERCISE ch02-counts
};

}  // namespace flashbook
