/// \file
/// Exercise ch07-budget: which tile fits at head_dim 128, from paper and pencil.
#pragma once

namespace flashbook::backward {

// FlashAttention-3's backward pass at head_dim 128 in bf16: a block keeps K and V of 128 keys and walks along
// tiles of queries. Two consumers of 128 threads own 64 keys each. Shared memory holds K and V, two stages of
// Q and dO, two tiles of dS, and dQ of one tile in float on its way to the sums. Leave the log-sum-exps and
// the barriers out. A block has 227 KB at most, a thread 255 registers; the tensor cores do 4096 FLOPs a
// clock, a multiply-add counted as two.
//
// Write products, not results: they show how you think, and the compiler multiplies. Within one percent is
// right.

// BEGIN SOLUTION ch07-budget
constexpr double kKeyBytes = 2 * 128 * 128 * 2;
// 80 rows of Q and of dO; 80 x 128 floats; 80 x 128 elements of two bytes.
constexpr double kStageBytes = 2 * 80 * 128 * 2;
constexpr double kDqBytes = 80 * 128 * 4;
constexpr double kDsBytes = 80 * 128 * 2;
constexpr double kSharedBytes = 65536 + 2 * 40960.0 + 40960 + 2 * 20480.0;
// All but K and V grows with the queries: 320 KB, of which a block has 227.
constexpr double kSharedBytes128 = 65536 + (2 * 40960.0 + 40960 + 2 * 20480.0) * 128 / 80;
// 64 keys x 128 dims, twice, dealt out to 128 threads; S^T and dP^T of 64 keys likewise.
constexpr double kSumRegisters = 2 * 64 * 128 / 128.0;
constexpr double kScoreRegisters80 = 2 * 64 * 80 / 128.0;
constexpr double kScoreRegisters128 = 2 * 64 * 128 / 128.0;
constexpr double kProductClocks = 5 * 2 * 80 * 128 * 128 / 4096.0;
constexpr double kAddedBytesAClock = 80 * 128 * 4 / 3200.0;
//~ // Bytes of K and V of the block's keys.
//~ constexpr double kKeyBytes = 0;
//~ // With tiles of 80 queries: bytes of a stage of Q and dO, of dQ's tile, of a tile of dS, and of all together.
//~ constexpr double kStageBytes = 0;
//~ constexpr double kDqBytes = 0;
//~ constexpr double kDsBytes = 0;
//~ constexpr double kSharedBytes = 0;
//~ // The same sum with tiles of 128 queries.
//~ constexpr double kSharedBytes128 = 0;
//~ // Registers of a consumer's thread for its sums of dK and dV.
//~ constexpr double kSumRegisters = 0;
//~ // And for S^T and dP^T together, with tiles of 80 queries and of 128.
//~ constexpr double kScoreRegisters80 = 0;
//~ constexpr double kScoreRegisters128 = 0;
//~ // Clocks of the tensor cores for the five products of a tile of 80 queries.
//~ constexpr double kProductClocks = 0;
//~ // Bytes of dQ that the block adds to memory in each of these clocks, on average.
//~ constexpr double kAddedBytesAClock = 0;
// END SOLUTION ch07-budget

}  // namespace flashbook::backward
