/// \file
/// Exercise ch06-budget: FP8 for head_dim 192 and others, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::fp8 {

// Plan step 5 for a head_dim of 192: `consumers` consumers of 64 queries each, `transposers` warps that
// transpose values, tiles of `keys` keys, Q in registers, an output that is stored without a separate tile.
// Sizes are in bytes; leave out barriers. A multiprocessor of an H200 has 227 KB of shared memory for a block
// (1 KB is 1024 bytes), which reads or writes 128 bytes per cycle; tensor cores that do 8192 FLOPs per cycle
// in e4m3, a multiply-add counted as two; 16 exponentials per cycle. Everything else you need is in the
// tables of version.cuh and of common/hopper/pipeline.h, and in the text of transpose.cuh.
//
// `try` checks each formula with the sizes below and others; the grader uses more. Sizes are double,
// so a quotient keeps its fraction; std::floor and std::ceil make it whole. Functions may call those above
// them.
struct Budget {
  double head_dim = 192, keys = 128, consumers = 2, transposers = 2;
  double rise = 3;  // lazy rescaling begins only where P exceeds its old maximum by 2^rise

  // BEGIN EXERCISE ch06-budget: FP8 for head_dim 192
  // Bytes of one stage of a pipeline, of keys or of values.
  double stage_bytes() const { return 0; }
  // How many stages the three pipelines can have together next to Q, and the bytes of Q and this many stages.
  double most_stages() const { return 0; }
  double shared_bytes() const { return 0; }
  // Arrivals that complete a phase of `full`, and of `empty`, in the pipeline of transposed values.
  double transposed_full_arrivals() const { return 0; }
  double transposed_empty_arrivals() const { return 0; }
  // How often one of the transposers calls ldmatrix_x4_trans for a tile.
  double loads_of_transposer() const { return 0; }
  // Registers that a consumer's thread needs: for O, for the scores of a tile, for P, for Q.
  double registers_o() const { return 0; }
  double registers_scores() const { return 0; }
  double registers_p() const { return 0; }
  double registers_q() const { return 0; }
  // wgmma instructions that a consumer issues for one tile of keys, for scores and values together.
  double products() const { return 0; }
  // Cycles that one tile of keys takes for all consumers together: on the tensor cores, for exponentials, and
  // in shared memory.
  double product_cycles() const { return 0; }
  double exponential_cycles() const { return 0; }
  double shared_memory_cycles() const { return 0; }
  // The largest whole offset with which P never exceeds 448, if it may exceed its old maximum by 2^rise, and
  // the exponent (of 2) of the smallest p that then keeps all bits of its mantissa.
  double offset() const { return 0; }
  double least_exponent() const { return 0; }
  // END EXERCISE ch06-budget
};

}  // namespace flashbook::fp8
