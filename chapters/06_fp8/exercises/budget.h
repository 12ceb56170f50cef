/// \file
/// Exercise ch06-budget: FP8 for head_dim 192 and others, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::fp8 {

// Somebody wants step 5 for a head_dim of 192: `consumers` consumers of 64 queries each, `transposers` warps
// that transpose values, tiles of `keys` keys, Q in registers, output that goes to memory without a tile of
// its own. Sizes are in bytes; leave barriers out. What a multiprocessor of an H200 has: 227 KB of shared
// memory for a block (1 KB is 1024 bytes), which reads or writes 128 bytes a cycle; tensor cores that do 8192
// FLOPs a cycle in e4m3, a multiply-add counted as two; 16 exponentials a cycle. What you need besides stands
// in the tables of version.cuh and of common/hopper/pipeline.h, and in the text of transpose.cuh.
//
// Each function is a formula of these sizes. `try` asks it for the sizes below and for others, the grader for
// sizes that nobody has seen. Sizes are double, so a quotient keeps its fraction; std::floor and std::ceil
// make it whole. Functions may call those above them.
struct Budget {
  double head_dim = 192, keys = 128, consumers = 2, transposers = 2;
  double rise = 3;  // lazy rescaling begins only where P exceeds its old maximum by 2^rise

  // BEGIN SOLUTION ch06-budget
  double stage_bytes() const { return keys * head_dim; }
  // What Q leaves of 227 KB.
  double most_stages() const { return std::floor((227 * 1024 - consumers * 64 * head_dim) / stage_bytes()); }
  double shared_bytes() const { return consumers * 64 * head_dim + most_stages() * stage_bytes(); }
  // Lane 0 of each transposer.
  double transposed_full_arrivals() const { return transposers; }
  // Lane 0 of the four warps of each consumer.
  double transposed_empty_arrivals() const { return consumers * 4; }
  // A load has 32 keys and 16 columns, and the warps share them.
  double loads_of_transposer() const { return keys / 32 * (head_dim / 16) / transposers; }
  // 64 rows by head_dim in float, dealt out to 128 threads; the scores; and the same four to a register.
  double registers_o() const { return 64 * head_dim / 128; }
  double registers_scores() const { return 64 * keys / 128; }
  double registers_p() const { return registers_scores() / 4; }
  double registers_q() const { return 64 * head_dim / 128 / 4; }
  // The head dimension in steps of 32, and the keys in steps of 32.
  double products() const { return head_dim / 32 + keys / 32; }
  // Two products, and an exponential a score.
  double product_cycles() const { return 2 * 2 * consumers * 64 * keys * head_dim / 8192; }
  double exponential_cycles() const { return consumers * 64 * keys / 16; }
  // TMA writes K and V, transposers read V and write it, each consumer reads K and V.
  double shared_memory_cycles() const { return (4 + 2 * consumers) * stage_bytes() / 128; }
  // 2^8 is 256, and 2^9 is 512, which is more than 448.
  double offset() const { return 8 - rise; }
  // 2^-6 is the smallest normal number.
  double least_exponent() const { return -6 - offset(); }
  //~ // What one stage of a pipeline holds, of keys or of values.
  //~ double stage_bytes() const { return 0; }
  //~ // How many stages the three pipelines can have together beside Q, and what Q and so many stages take.
  //~ double most_stages() const { return 0; }
  //~ double shared_bytes() const { return 0; }
  //~ // Arrivals that complete a phase of `full`, and of `empty`, in the pipeline of transposed values.
  //~ double transposed_full_arrivals() const { return 0; }
  //~ double transposed_empty_arrivals() const { return 0; }
  //~ // How often one of the transposers calls ldmatrix_x4_trans for a tile.
  //~ double loads_of_transposer() const { return 0; }
  //~ // What a consumer's thread needs of registers: for O, for the scores of a tile, for P, for Q.
  //~ double registers_o() const { return 0; }
  //~ double registers_scores() const { return 0; }
  //~ double registers_p() const { return 0; }
  //~ double registers_q() const { return 0; }
  //~ // wgmma that a consumer issues for one tile of keys, for scores and values together.
  //~ double products() const { return 0; }
  //~ // Cycles that one tile of keys takes for all consumers together: of the tensor cores, for exponentials, and of
  //~ // shared memory.
  //~ double product_cycles() const { return 0; }
  //~ double exponential_cycles() const { return 0; }
  //~ double shared_memory_cycles() const { return 0; }
  //~ // The largest whole offset with which P never exceeds 448, if it may exceed its old maximum by 2^rise. And the
  //~ // exponent (of 2) of the least p that then has all bits of its mantissa.
  //~ double offset() const { return 0; }
  //~ double least_exponent() const { return 0; }
  // END SOLUTION ch06-budget
};

}  // namespace flashbook::fp8
