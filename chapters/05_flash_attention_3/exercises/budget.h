/// \file
/// Exercise ch05-budget: a cut for head_dim 192, from paper and pencil.
#pragma once

namespace flashbook::flash3 {

// Somebody wants step 4 for a head_dim of 192, in bf16: a producer, two consumers of 64 queries each, a ring
// of four stages. Sizes are in bytes; leave the barriers out, they are less than a hundred. What a
// multiprocessor of an H200 has: 65536 registers; 227 KB of shared memory for a block (1 KB is 1024 bytes);
// tensor cores that do 4096 FLOPs a cycle, a multiply-add counted as two; 16 exponentials a cycle.
//
// Write products, not results: they show how you think, and the compiler multiplies. Whole numbers divide
// downwards: 7 / 2 is 3, 7 / 2.0 is 3.5. Within one percent is right.

// BEGIN SOLUTION ch05-budget
// (227 * 1024 - 2 * 64 * 384) / (4 * 384) is 119; the multiple of 16 below it is 112.
constexpr double kMostKeys = 112;
// 96 rows of 384 bytes, and four of these beside Q's 128 rows.
constexpr double kStageBytes = 96 * 384.0;
constexpr double kSharedBytes = (128 + 4 * 96) * 384.0;
// The producer's one, which announces the bytes.
constexpr double kFullArrivals = 1;
// Lane 0 of the four warps of both consumers.
constexpr double kEmptyArrivals = 2 * 4;
// 43 tiles of keys, the last not full; K and V of each; every fourth falls to stage 0, the first of all too.
constexpr double kFillings = 22;
// 65536 / 384 is 170.7; the multiple of 8 below it is 168.
constexpr double kRegistersAtStart = 168;
// (3 * 168 - 40) / 2.
constexpr double kRegistersOfConsumer = 232;
// 64 rows by 192 dims in float, dealt out to 128 threads; 64 by 96 scores; and the same in two bytes each.
constexpr double kRegistersO = 64 * 192 / 128.0;
constexpr double kRegistersScores = 64 * 96 / 128.0;
constexpr double kRegistersP = 64 * 96 / 128.0 / 2;
// The head dimension in steps of 16, and the keys in steps of 16.
constexpr double kProducts = 192 / 16.0 + 96 / 16.0;
// Two products of 2 * 128 * 96 * 192 FLOPs, and 128 * 96 exponentials: a third, which is worth hiding.
constexpr double kProductCycles = 2 * 2 * 128 * 96 * 192 / 4096.0;
constexpr double kExponentialCycles = 128 * 96 / 16.0;
//~ // The most keys that a tile can have, a multiple of 16, if Q and the ring are to fit.
//~ constexpr double kMostKeys = 0;
//~
//~ // From here on a tile has 96 keys. What one stage of the ring holds, and what the block takes.
//~ constexpr double kStageBytes = 0;
//~ constexpr double kSharedBytes = 0;
//~ // Arrivals that complete a phase of `full`, and of `empty`.
//~ constexpr double kFullArrivals = 0;
//~ constexpr double kEmptyArrivals = 0;
//~ // How often stage 0 is filled for 4096 keys.
//~ constexpr double kFillings = 0;
//~ // Registers of a thread at the start, where all threads have equally many, a multiple of 8. And of a
//~ // consumer's, when the producer has kept 40 of them.
//~ constexpr double kRegistersAtStart = 0;
//~ constexpr double kRegistersOfConsumer = 0;
//~ // What a consumer's thread needs of them: for O, for the scores of a tile, for P.
//~ constexpr double kRegistersO = 0;
//~ constexpr double kRegistersScores = 0;
//~ constexpr double kRegistersP = 0;
//~ // wgmma that a consumer issues for one tile of keys, for scores and values together.
//~ constexpr double kProducts = 0;
//~ // Cycles that one tile of keys takes for both consumers together: of the tensor cores, and for the exponentials of
//~ // its scores, without those of the corrections.
//~ constexpr double kProductCycles = 0;
//~ constexpr double kExponentialCycles = 0;
// END SOLUTION ch05-budget

}  // namespace flashbook::flash3
