/// \file
/// Exercise ch02-counts: how often the maximum moves, from paper and pencil.
#pragma once

namespace flashbook {

// Sums may be products and quotients, as in `1 + 0.5 + 1.0 / 3`; the compiler works them out. Right is what
// is within two thousandths. The first four numbers are about this row of scores, in this order:
constexpr float kScores[] = {3, 1, 4, 1, 5, 9, 2, 6};

// BEGIN SOLUTION ch02-counts
constexpr double kMaximum = 9;
// 1 for the 9 itself, then e^-3 for the 6, e^-4 for the 5, e^-5 for the 4, ...
constexpr double kSum = 1 + 0.0498 + 0.0183 + 0.0067 + 0.0025 + 0.0009 + 2 * 0.0003;
// To 4, to 5, to 9.
constexpr double kRises = 3;
// From the 4 of the first block to the 9 of the second.
constexpr double kRisesInBlocksOf4 = 1;
// 1 + 1/2 + 1/3 + ... + 1/65536, about ln(65536) + 0.577.
constexpr double kMaximaOf65536 = 11.09 + 0.577;
// Each of the 1024 tiles is equally likely to hold the largest score so far: ln(1024) + 0.577.
constexpr double kTilesWithAMaximum = 6.93 + 0.577;
// Step 3 corrects O for every key, step 4 for every tile of 64 keys.
constexpr double kMultiplicationsOfStep3 = 65536.0 * 128;
constexpr double kMultiplicationsOfStep4 = 65536.0 / 64 * 128;
//~ // The row's maximum m.
//~ constexpr double kMaximum = 0;
//~ // Its sum l, measured against that maximum. e^-1 is 0.368, and each further e^-1 divides by 2.718.
//~ constexpr double kSum = 0;
//~ // One score at a time: how often does the maximum rise after the first score?
//~ constexpr double kRises = 0;
//~ // In blocks of four scores: how often does it rise after the first block?
//~ constexpr double kRisesInBlocksOf4 = 0;
//~
//~ // Now a row of 65536 different scores in random order. How many of them, the first included, are larger than all
//~ // before them? The number to expect on average.
//~ constexpr double kMaximaOf65536 = 0;
//~ // And how many of its tiles of 64 scores, the first included, bring a new maximum?
//~ constexpr double kTilesWithAMaximum = 0;
//~ // head_dim is 128. How many multiplications does step 3 spend on correcting O, for this one row?
//~ constexpr double kMultiplicationsOfStep3 = 0;
//~ // And step 4, with tiles of 64 keys?
//~ constexpr double kMultiplicationsOfStep4 = 0;
// END SOLUTION ch02-counts

}  // namespace flashbook
