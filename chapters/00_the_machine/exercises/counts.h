/// \file
/// Exercise ch00-counts: a kernel on an H200, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>

namespace flashbook::machine {

// According to chapter 0, a multiprocessor has 65,536 registers, 227 KB of shared memory, and room for 64
// warps. Each function is a formula in these sizes. `try` calls it with the sizes below and with others, and
// the grader with sizes that are not published. Sizes are double, so a quotient keeps its fraction; use
// std::floor and std::ceil to round it. Functions may call those above them.
struct Counts {
  double registers = 96;      ///< per thread
  double threads = 128;       ///< per block
  double shared_kb = 64;      ///< per block
  double stride = 3;          ///< floats from one lane's address to the next, in device memory
  double offset = 16;         ///< bytes, a multiple of 8
  double word_stride = 12;    ///< words from one lane's address to the next, in shared memory
  double latency = 700;       ///< clocks of 1 / 1.8e9 s that a load from device memory takes
  double bandwidth = 4.8e12;  ///< of device memory, in bytes per second
  double queries = 128, keys = 128, head_dim = 128;  ///< sizes of an attention tile

  // BEGIN EXERCISE ch00-counts: one kernel on paper
  // How many blocks would fit on a multiprocessor if only registers mattered? If only shared memory did?
  double blocks_by_registers() const { return 0; }
  double blocks_by_shared() const { return 0; }
  // The occupancy, from 0 to 1. There are three limits.
  double occupancy() const { return 0; }

  // Lane i loads float number stride * i of an array that begins at a multiple of 128 bytes. How many sectors
  // does the load touch?
  double sectors() const { return 0; }
  // Lane i loads the 8 bytes at address offset + 8 * i. How many sectors does the load touch?
  double sectors_of_pairs() const { return 0; }
  // In shared memory lane i loads word word_stride * i. How many wavefronts does the load take? (std::gcd may
  // help.)
  double wavefronts() const { return 0; }

  // 132 multiprocessors share device memory evenly. How many bytes must each of them have in flight at any
  // time, so that memory is never idle?
  double bytes_under_way() const { return 0; }

  // How many clocks does a multiprocessor take for the two products of a tile, Q K^T and P V, on the tensor
  // cores at the published rate? And how many does it take for an exponential of each score?
  double product_clocks() const { return 0; }
  double exponential_clocks() const { return 0; }
  // END EXERCISE ch00-counts
};

}  // namespace flashbook::machine
