/// \file
/// Exercise ch00-counts: one kernel on an H200, from paper and pencil.
#pragma once

namespace flashbook::machine {

// A kernel takes 96 registers a thread and 64 KB of shared memory a block; a block has 128 threads. All that
// chapter 0 says of a multiprocessor holds: 65,536 registers, 227 KB of shared memory, room for 64 warps.
//
// Write products and quotients, as in `65536.0 / 96`: they show how you think, and the compiler works them
// out. Begin each with a floating-point number. Within half a percent is right.

// BEGIN SOLUTION ch00-counts
// 65536 / (96 * 128) is 5.33, and a third of a block does not run.
constexpr double kBlocksByRegisters = 5;
constexpr double kBlocksByShared = 3;  // 227 / 64 is 3.55
// Shared memory sets the limit: 3 blocks of 4 warps, of 64.
constexpr double kOccupancy = 3.0 * 4 / 64;

// 384 bytes that begin at a multiple of 32, and a third of them is wanted.
constexpr double kSectorsOfX = 384.0 / 32;
// The first sector holds 16 bytes of them, the next seven hold 32 each, the last holds 16.
constexpr double kSectorsShifted = 9;
// Lanes i and i + 8 are 96 words apart, which is 3 * 32: the same bank. So 8 banks have 4 words each.
constexpr double kWavefronts = 4;

// What flows in the time that a byte takes: bytes a second, times seconds, over the multiprocessors.
constexpr double kBytesUnderWay = 4.8e12 * (700 / 1.8e9) / 132;

// Two products of 128 x 128 x 128 multiply-adds, at 4096 FLOPs a clock.
constexpr double kProductClocks = 2.0 * 2 * 128 * 128 * 128 / 4096;
constexpr double kExponentialClocks = 128.0 * 128 / 16;
//~ // How many of its blocks fit on a multiprocessor, if only registers counted? And if only shared memory counted?
//~ constexpr double kBlocksByRegisters = 0;
//~ constexpr double kBlocksByShared = 0;
//~ // Its occupancy, from 0 to 1.
//~ constexpr double kOccupancy = 0;
//~
//~ // Points of three floats (x, y, z) lie one after the other, from a multiple of 128 bytes on. Lane i loads the x of
//~ // point i. How many sectors does a warp's load touch?
//~ constexpr double kSectorsOfX = 0;
//~ // Lane i loads the 8 bytes at address 16 + 8 i. How many sectors?
//~ constexpr double kSectorsShifted = 0;
//~ // In shared memory lane i loads word 12 i. How many wavefronts does the load take?
//~ constexpr double kWavefronts = 0;
//~
//~ // Device memory gives 4.8e12 bytes a second, 132 multiprocessors share it evenly, a clock is 1 / 1.8e9 s, and a load
//~ // takes 700 clocks. How many bytes must each multiprocessor have asked for, at any moment, so that memory never idles?
//~ constexpr double kBytesUnderWay = 0;
//~
//~ // A tile of attention: 128 queries, 128 keys, d = 128. How many clocks does a multiprocessor take for its two products,
//~ // Q K^T and P V, on the tensor cores at the published rate? And how many for an exponential of each score?
//~ constexpr double kProductClocks = 0;
//~ constexpr double kExponentialClocks = 0;
// END SOLUTION ch00-counts

}  // namespace flashbook::machine
