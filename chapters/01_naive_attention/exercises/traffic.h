/// \file
/// Exercise ch01-traffic: what chapter 1's kernels compute and move, from paper and pencil.
#pragma once

namespace flashbook::naive {

// The problem: batch 1; 32 query heads that share 8 heads of keys and values; 2048 queries and 2048 keys;
// head_dim 64; causal; f16, so 2 bytes an element of Q, K, V, O and P, and 4 an element of S.
//
// Count a causal mask as half of all pairs, and leave out the log-sum-exp. Write products, not results, as in
// `2.0 * 2048 * 64`: they show how you think, and the compiler multiplies. Begin each with a floating-point
// number (2.0 * 2048, not 2 * 2048): integers end at 2^31. Within half a percent is right. Mend the first
// number that fails: later ones use it.

// BEGIN SOLUTION ch01-traffic
// In one head, half of the square.
constexpr double kPairs = 2048.0 * 2048 / 2;
// A pair takes a dot product of 64 numbers and an addition of 64 weighted ones; a multiply-add counts as two.
constexpr double kFlops = 4.0 * 32 * 64 * kPairs;
// Q and O have 32 heads, K and V have 8.
constexpr double kInputOutputBytes = 2.0 * 2048 * 64 * (32 + 8 + 8 + 32);
// Each query head has scores of its own, and the memory has room for the masked ones too.
constexpr double kScoreBytes = 2048.0 * 2048 * 32 * (4 + 2);
// S is written, then read for the maximum, the sum and the quotients; P is written and read.
constexpr double kStep1Bytes = kInputOutputBytes + kPairs * 32 * (4 * 4 + 2 * 2);
// S is written and read once.
constexpr double kStep2Bytes = kInputOutputBytes + kPairs * 32 * (2 * 4 + 2 * 2);
constexpr double kFlopsPerByte = kFlops / kStep2Bytes;
//~ // Pairs of a query and a key that it sees, in one head.
//~ constexpr double kPairs = 0;
//~ // From here on of all heads together. Floating-point operations of both products.
//~ constexpr double kFlops = 0;
//~ // Bytes of Q, K, V and O together.
//~ constexpr double kInputOutputBytes = 0;
//~ // Bytes of device memory that S and P take. They are stored whole, masked or not.
//~ constexpr double kScoreBytes = 0;
//~ // Bytes that the three kernels of step 1 move: Q, K, V and O once, S and P as often as a kernel walks over them;
//~ // only the visible pairs are written and read.
//~ constexpr double kStep1Bytes = 0;
//~ // The same for the three kernels of step 2.
//~ constexpr double kStep2Bytes = 0;
//~ // FLOPs a byte of step 2.
//~ constexpr double kFlopsPerByte = 0;
// END SOLUTION ch01-traffic

}  // namespace flashbook::naive
