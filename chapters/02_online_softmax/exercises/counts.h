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
// sizes that nobody has seen. Sizes are double, so a quotient keeps its fraction; std::floor and std::ceil
// make it whole. Functions may call those above them.
struct Counts {
  double scores = 65536, tile = 64, head_dim = 128, first = 3, step = 0.5;

  // BEGIN SOLUTION ch02-counts
  double maximum() const { return first + (scores - 1) * step; }
  // 1 for the last score itself, then e^-step, e^-2step, ...
  double sum() const { return (1 - std::exp(-scores * step)) / (1 - std::exp(-step)); }
  // With every score but the first.
  double rises() const { return scores - 1; }
  // With every tile but the first.
  double rises_in_tiles() const { return scores / tile - 1; }
  // 1 + 1/2 + 1/3 + ... + 1/scores.
  double maxima() const { return std::log(scores) + 0.5772; }
  // Each of the tiles is equally likely to hold the largest score so far.
  double tiles_with_a_maximum() const { return std::log(scores / tile) + 0.5772; }
  // Step 3 corrects O for every key, step 4 for every tile.
  double multiplications_of_step3() const { return scores * head_dim; }
  double multiplications_of_step4() const { return scores / tile * head_dim; }
  //~ // The row that rises: its maximum m, and its sum l, measured against that maximum.
  //~ double maximum() const { return 0; }
  //~ double sum() const { return 0; }
  //~ // One score at a time: how often does the maximum rise after the first score?
  //~ double rises() const { return 0; }
  //~ // A tile at a time: how often does it rise after the first tile?
  //~ double rises_in_tiles() const { return 0; }
  //~
  //~ // The row in random order. How many of its scores, the first included, are larger than all before them? The
  //~ // number to expect on average.
  //~ double maxima() const { return 0; }
  //~ // And how many of its tiles, the first included, bring a new maximum?
  //~ double tiles_with_a_maximum() const { return 0; }
  //~ // How many multiplications does step 3 spend on correcting O, for this one row?
  //~ double multiplications_of_step3() const { return 0; }
  //~ // And step 4?
  //~ double multiplications_of_step4() const { return 0; }
  // END SOLUTION ch02-counts
};

}  // namespace flashbook
