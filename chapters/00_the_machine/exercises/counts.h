/// \file
/// Exercise ch00-counts: one kernel on an H200, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>

namespace flashbook::machine {

// A kernel on an H200. All that chapter 0 says of a multiprocessor holds: 65,536 registers, 227 KB of shared
// memory, room for 64 warps.
//
// Each function is a formula of these sizes. `try` asks it for the sizes below and for others, the grader for
// sizes that nobody has seen. Sizes are double, so a quotient keeps its fraction; std::floor and std::ceil
// make it whole. Functions may call those above them.
struct Counts {
  double registers = 96, threads = 128, shared_kb = 64;     // of a thread; of a block; of a block
  double floats = 3, offset = 16, stride = 12;              // of a point; in bytes; in words
  double queries = 128, keys = 128, head_dim = 128;         // of a tile of attention
  double bytes_a_second = 4.8e12, clocks_a_second = 1.8e9;  // of 132 multiprocessors together; of each
  double clocks_of_a_load = 700;

  // BEGIN SOLUTION ch00-counts
  // A part of a block does not run.
  double blocks_by_registers() const { return std::floor(65536 / (registers * threads)); }
  double blocks_by_shared() const { return std::floor(227 / shared_kb); }
  // What there is less of sets the limit; a block has threads / 32 warps, of 64.
  double occupancy() const {
    return std::min(blocks_by_registers(), blocks_by_shared()) * (threads / 32) / 64;
  }

  // From the first x to the last; a point that is longer than a sector leaves some out.
  double sectors_of_x() const { return std::min(32.0, std::ceil((31 * floats * 4 + 4) / 32)); }
  // The first sector and the last may hold less than 32 bytes of them.
  double sectors_shifted() const { return std::floor((offset + 255) / 32) - std::floor(offset / 32) + 1; }
  // Lanes meet in a bank where a multiple of the stride is one of 32 words.
  double wavefronts() const { return std::gcd(int(stride), 32); }

  // What flows in the time that a byte takes: bytes a second, times seconds, over the multiprocessors.
  double bytes_under_way() const { return bytes_a_second * (clocks_of_a_load / clocks_a_second) / 132; }

  // Two products of so many multiply-adds, at 4096 FLOPs a clock.
  double product_clocks() const { return 2 * 2 * queries * keys * head_dim / 4096; }
  double exponential_clocks() const { return queries * keys / 16; }
  //~ // How many blocks fit on a multiprocessor, if only registers counted? And if only shared memory counted?
  //~ double blocks_by_registers() const { return 0; }
  //~ double blocks_by_shared() const { return 0; }
  //~ // The occupancy, from 0 to 1.
  //~ double occupancy() const { return 0; }
  //~
  //~ // Points of `floats` floats (x, y, ...) lie one after the other, from a multiple of 128 bytes on. Lane i loads
  //~ // the x of point i. How many sectors does a warp's load touch?
  //~ double sectors_of_x() const { return 0; }
  //~ // Lane i loads the 8 bytes at address offset + 8 i; the offset is a multiple of 8. How many sectors?
  //~ double sectors_shifted() const { return 0; }
  //~ // In shared memory lane i loads word stride * i. How many wavefronts does the load take?
  //~ double wavefronts() const { return 0; }
  //~
  //~ // The multiprocessors share device memory evenly. How many bytes must each have asked for, at any moment, so that
  //~ // memory never idles?
  //~ double bytes_under_way() const { return 0; }
  //~
  //~ // How many clocks does a multiprocessor take for the two products of a tile, Q K^T and P V, on the tensor cores at
  //~ // the published rate? And how many for an exponential of each score?
  //~ double product_clocks() const { return 0; }
  //~ double exponential_clocks() const { return 0; }
  // END SOLUTION ch00-counts
};

}  // namespace flashbook::machine
