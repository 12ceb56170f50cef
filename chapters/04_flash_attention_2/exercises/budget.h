/// \file
/// Exercise ch04-budget: sizes for head_dim 192 and others, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::fa2 {

// Some models have a head_dim of 192. The sizes to judge, in bf16: a block has `warps` warps of `queries`
// queries each. A tile has `keys` keys. There are `stages` stages of K and V, and Q stays in shared memory
// and is read again with every tile. A multiprocessor of an H200 has 228 KB of shared memory (1 KB is 1024
// bytes), of which each block takes 1 KB more than it requests, and 65536 registers. Each function is a
// formula of these sizes. `try` calls it with the sizes below and with others, and the grader with sizes that
// are not published. Sizes are double, so a quotient keeps its fraction; use std::floor and std::ceil to
// round it. Functions may call those above them.
struct Budget {
  double head_dim = 192, warps = 4, queries = 32, keys = 64, stages = 2;

  // BEGIN EXERCISE ch04-budget: sizes on paper
  // Shared memory of a block, in bytes.
  double shared_bytes() const { return 0; }
  // Blocks for which a multiprocessor has shared memory.
  double blocks() const { return 0; }
  // Registers of a thread for O, and for the scores of a tile, in float.
  double registers_o() const { return 0; }
  double registers_scores() const { return 0; }
  // The most registers that a thread can have with this many blocks. They are allocated in multiples of 8,
  // and no thread can have more than an instruction can address (see the text).
  double registers_at_most() const { return 0; }
  // mma.sync (m16n8k16) that a warp executes for one tile of keys, for scores and values together.
  double products() const { return 0; }
  // Bytes of shared memory that a warp reads for one tile of keys.
  double read_bytes() const { return 0; }
  // Bytes that all warps of a block read for one tile, if a warp has half as many queries and a block twice
  // as many warps.
  double block_reads_of_half() const { return 0; }
  // END EXERCISE ch04-budget
};

}  // namespace flashbook::fa2
