/// \file
/// Exercise ch02-counts: how often the maximum moves, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook {

// A row of scores, which comes in tiles of `tile` scores; `tile` divides `scores`. First it rises: the first
// score is `first`, and each is `step` larger than the one before. Then its scores differ and stand in random
// order.
//
// Each function is a formula of these sizes. `try` asks it for the sizes below and for others, the grader for
// sizes that are not published. Sizes are double, so a quotient keeps its fraction; std::floor and std::ceil
// make it whole. Functions may call those above them.
struct Counts {
  double scores = 65536, tile = 64, head_dim = 128, first = 3, step = 0.5;

  // BEGIN EXERCISE ch02-counts: how often the maximum moves
  // The row that rises: its maximum m, and its sum l, measured against that maximum.
  double maximum() const { return 0; }
  double sum() const { return 0; }
  // One score at a time: how often does the maximum rise after the first score?
  double rises() const { return 0; }
  // A tile at a time: how often does it rise after the first tile?
  double rises_in_tiles() const { return 0; }

  // The row in random order. How many of its scores, the first included, are larger than all before them? The
  // number to expect on average.
  double maxima() const { return 0; }
  // And how many of its tiles, the first included, bring a new maximum?
  double tiles_with_a_maximum() const { return 0; }
  // How many multiplications does step 3 spend on correcting O, for this one row?
  double multiplications_of_step3() const { return 0; }
  // And step 4?
  double multiplications_of_step4() const { return 0; }
  // END EXERCISE ch02-counts
};

}  // namespace flashbook
