/// \file
/// Exercise ch06-budget: FP8 for head_dim 192, from paper and pencil.
#pragma once

namespace flashbook::fp8 {

// Somebody wants step 5 for a head_dim of 192: two consumers of 64 queries each, tiles of 128 keys, Q in
// registers, output that goes to memory without a tile of its own. Sizes are in bytes; leave barriers out.
// What a multiprocessor of an H200 has: 227 KB of shared memory for a block (1 KB is 1024 bytes), which reads
// or writes 128 bytes a cycle; tensor cores that do 8192 FLOPs a cycle in e4m3, a multiply-add counted as
// two; 16 exponentials a cycle. What you need besides stands in the tables of version.cuh and of
// chapter 5's pipeline.cuh, and in the text of transpose.cuh.
//
// Write products, not results: they show how you think, and the compiler multiplies. Whole numbers divide
// downwards: 7 / 2 is 3, 7 / 2.0 is 3.5. Within one percent is right.

// BEGIN SOLUTION ch06-budget
constexpr double kStageBytes = 128 * 192.0;
// (227 * 1024 - 2 * 64 * 192) / kStageBytes is 8.5.
constexpr double kMostStages = 8;
// Q is as large as a stage.
constexpr double kSharedBytes = 9 * 128 * 192.0;
// Lane 0 of both transposers.
constexpr double kTransposedFullArrivals = 2;
// Lane 0 of the four warps of both consumers.
constexpr double kTransposedEmptyArrivals = 2 * 4;
// A load has 32 keys and 16 columns, and each of two warps has half of them.
constexpr double kLoadsOfTransposer = 128 / 32 * (192 / 16) / 2.0;
// 64 rows by 192 dims in float, dealt out to 128 threads; 64 by 128 scores; and the same four to a register.
constexpr double kRegistersO = 64 * 192 / 128.0;
constexpr double kRegistersScores = 64 * 128 / 128.0;
constexpr double kRegistersP = 64 * 128 / 128.0 / 4;
constexpr double kRegistersQ = 64 * 192 / 128.0 / 4;
// The head dimension in steps of 32, and the keys in steps of 32.
constexpr double kProducts = 192 / 32.0 + 128 / 32.0;
// Two products of 2 * 128 * 128 * 192 FLOPs, and 128 * 128 exponentials.
constexpr double kProductCycles = 2 * 2 * 128 * 128 * 192 / 8192.0;
constexpr double kExponentialCycles = 128 * 128 / 16.0;
// TMA writes K and V, transposers read V and write it, each of two consumers reads K and V: eight tiles.
constexpr double kSharedMemoryCycles = 8 * 128 * 192 / 128.0;
// 2^(5 + 3) is 256, and 2^(6 + 3) is 512, which is more than 448.
constexpr double kOffset = 5;
// 2^-6 is the smallest normal number.
constexpr double kLeastExponent = -6 - 5;
//~ // What one stage of a pipeline holds, of keys or of values.
//~ constexpr double kStageBytes = 0;
//~ // How many stages the three pipelines can have together beside Q, and what Q and so many stages take.
//~ constexpr double kMostStages = 0;
//~ constexpr double kSharedBytes = 0;
//~ // Arrivals that complete a phase of `full`, and of `empty`, in the pipeline of transposed values.
//~ constexpr double kTransposedFullArrivals = 0;
//~ constexpr double kTransposedEmptyArrivals = 0;
//~ // How often one of the transposers calls ldmatrix_x4_trans for a tile.
//~ constexpr double kLoadsOfTransposer = 0;
//~ // What a consumer's thread needs of registers: for O, for the scores of a tile, for P, for Q.
//~ constexpr double kRegistersO = 0;
//~ constexpr double kRegistersScores = 0;
//~ constexpr double kRegistersP = 0;
//~ constexpr double kRegistersQ = 0;
//~ // wgmma that a consumer issues for one tile of keys, for scores and values together.
//~ constexpr double kProducts = 0;
//~ // Cycles that one tile of keys takes for both consumers together: of the tensor cores, for exponentials, and of
//~ // shared memory.
//~ constexpr double kProductCycles = 0;
//~ constexpr double kExponentialCycles = 0;
//~ constexpr double kSharedMemoryCycles = 0;
//~ // Lazy rescaling shall begin only where P exceeds its old maximum by 2^3. The largest whole offset with which P
//~ // never exceeds 448. And the exponent (of 2) of the least p that then has all bits of its mantissa.
//~ constexpr double kOffset = 0;
//~ constexpr double kLeastExponent = 0;
// END SOLUTION ch06-budget

}  // namespace flashbook::fp8
