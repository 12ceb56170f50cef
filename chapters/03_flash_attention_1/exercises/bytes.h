/// \file
/// Exercise ch03-bytes: what the tiles of chapter 3 take and move, from paper and pencil.
#pragma once

namespace flashbook::flash1 {

// The problem: batch 1; 32 query heads that share 8 heads of keys and values; 2048 queries and 2048 keys;
// head_dim 64; no mask; f16, so 2 bytes an element of Q, K, V and O, and 4 a number of O on its way, m, l,
// scores.
//
// Write products, not results, as in `2.0 * 2048 * 64`: they show how you think, and the compiler multiplies.
// Whole numbers divide downwards: 7 / 2 is 3, 7 / 2.0 is 3.5. Counts are exact: a hundredth off is wrong.

// BEGIN SOLUTION ch03-bytes
// Q, K and V of 64 rows, 2 bytes each, and 64 by 64 weights of 4 bytes.
constexpr double kTileBytes = 3 * 2 * 64.0 * 64 + 4 * 64.0 * 64;
// 6 B d + 4 B^2 = 227 * 1024 has the solution B = 197; the multiple of 16 below it is 192.
constexpr double kLargestTile = 192;
// Every head asks for K and V once and writes O and the log-sum-exp once. Q comes 32 times, once for each
// tile of keys; O, m and l are stored by all but the last and fetched by all but the first.
constexpr double kStep1Bytes = 32 * 2048 * (2 * 64.0 * (3 + 32) + 4 * (64 + 2.0) * (31 + 31) + 4);
// Q and O once; K and V for each of 32 tiles of queries.
constexpr double kStep2Bytes = 32 * 2048 * (2 * 64.0 * (2 + 2 * 32) + 4);
// Twice as many rows: half as many tiles.
constexpr double kStep2BytesOf128 = 32 * 2048 * (2 * 64.0 * (2 + 2 * 16) + 4);
// The unfinished O, m and l of every row.
constexpr double kStep1Memory = 32 * 2048 * 4 * (64 + 2.0);
// S of 4 bytes and P of 2, for every pair of every query head.
constexpr double kChapter1Memory = 32 * 2048.0 * 2048 * (4 + 2);
//~ // Shared memory of a block in steps 1 and 2 with tiles of 64 rows, in bytes. Leave out the padding.
//~ constexpr double kTileBytes = 0;
//~ // The largest tile, in rows, a multiple of 16, for which that is at most 227 KB (1 KB is 1024 bytes).
//~ constexpr double kLargestTile = 0;
//~ // From here on of all heads together. Bytes that step 1 asks memory for, with tiles of 64 rows.
//~ constexpr double kStep1Bytes = 0;
//~ // The same for step 2, with tiles of 64 rows.
//~ constexpr double kStep2Bytes = 0;
//~ // And with tiles of 128 rows.
//~ constexpr double kStep2BytesOf128 = 0;
//~ // Bytes of device memory that step 1 needs beyond inputs and outputs.
//~ constexpr double kStep1Memory = 0;
//~ // And what chapter 1 needs, for S and P.
//~ constexpr double kChapter1Memory = 0;
// END SOLUTION ch03-bytes

}  // namespace flashbook::flash1
