/// \file
/// Exercise ch04-budget: sizes for head_dim 192, from paper and pencil.
#pragma once

namespace flashbook::fa2 {

// Some models have a head_dim of 192. The sizes to judge, in bf16: a block has four warps of 32 queries each.
// A tile has 64 keys. There are two stages of K and V, and Q stays in shared memory and is read again with
// every tile.
//
// Write products, not results: they show how you think, and the compiler multiplies. Whole numbers divide
// downwards: 7 / 2 is 3, 7 / 2.0 is 3.5. Within two percent is right.

// BEGIN SOLUTION ch04-budget
// Q of 128 rows, and twice K and V of 64 rows, 384 bytes each.
constexpr double kSharedBytes = (128 + 2 * 2 * 64) * 384.0;
// 144 KB and one more, of 228.
constexpr double kBlocks = 1;
// 32 rows by 192 dims in float, dealt out to 32 lanes; the same for 64 keys.
constexpr double kRegistersO = 32 * 192 / 32.0;
constexpr double kRegistersScores = 32 * 64 / 32.0;
// 65536 / 128 would be 512, but an instruction can name 255: with O and scores alone at 256 these sizes would
// spill.
constexpr double kRegistersAtMost = 255;
// 2 * 32 rows * 64 keys * 192 dims multiply-adds, of which one mma.sync does 16 * 8 * 16.
constexpr double kProducts = 2 * 32 * 64 * 192 / (16 * 8 * 16.0);
// Q's 32 rows, and all 64 rows of K and of V.
constexpr double kReadBytes = (32 + 64 + 64) * 384.0;
// Each of eight warps of 16 rows does half as many products and reads as much of K and V.
constexpr double kReadBytesOf16 = (16 + 64 + 64) * 384.0;
//~ // Shared memory of a block, in bytes.
//~ constexpr double kSharedBytes = 0;
//~ // Blocks for which a multiprocessor of an H200 has shared memory: it has 228 KB, and each block takes 1 KB
//~ // more than it asks for.
//~ constexpr double kBlocks = 0;
//~ // Registers of a thread for O, and for the scores of a tile, in float.
//~ constexpr double kRegistersO = 0;
//~ constexpr double kRegistersScores = 0;
//~ // The most registers that a thread can have with so many blocks: a multiprocessor has 65536, and no thread can
//~ // have more than an instruction can name (the text says how many).
//~ constexpr double kRegistersAtMost = 0;
//~ // mma.sync (m16n8k16) that a warp executes for one tile of keys, for scores and values together.
//~ constexpr double kProducts = 0;
//~ // Bytes of shared memory that a warp reads for one tile of keys.
//~ constexpr double kReadBytes = 0;
//~ // The same if a warp has 16 queries and a block eight warps.
//~ constexpr double kReadBytesOf16 = 0;
// END SOLUTION ch04-budget

}  // namespace flashbook::fa2
