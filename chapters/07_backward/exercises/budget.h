/// \file
/// Exercise ch07-budget: which tile fits, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::backward {

// FlashAttention-3's backward pass in bf16: a block keeps K and V of `keys` keys and loops over tiles of
// `queries` queries. `consumers` consumers of 128 threads share the keys. Shared memory holds K and V, two
// stages of Q and dO, two tiles of dS, and dQ of one tile in float on its way to the sums. Leave out the
// log-sum-exps and the barriers. A block has at most 227 KB (1 KB is 1024 bytes), a thread 255 registers; the
// tensor cores do 4096 FLOPs per clock, a multiply-add counted as two.
//
// `try` checks each formula with the sizes below and others; the grader uses more. Sizes are double,
// so a quotient keeps its fraction; std::floor and std::ceil make it whole. Functions may call those above
// them.
struct Budget {
  double head_dim = 128, keys = 128, queries = 80, consumers = 2;

  // BEGIN EXERCISE ch07-budget: which tile fits
  // Bytes of K and V of the block's keys.
  double key_bytes() const { return 0; }
  // Bytes of a stage of Q and dO, of dQ's tile, of a tile of dS, and of all together.
  double stage_bytes() const { return 0; }
  double dq_bytes() const { return 0; }
  double ds_bytes() const { return 0; }
  double shared_bytes() const { return 0; }
  // The most queries that a tile can have, a multiple of 16, if everything must fit.
  double most_queries() const { return 0; }
  // Registers of a consumer's thread for its sums of dK and dV.
  double sum_registers() const { return 0; }
  // Registers for S^T and dP^T together.
  double score_registers() const { return 0; }
  // Tensor core clocks for the five products of a tile of queries.
  double product_clocks() const { return 0; }
  // Bytes of dQ that the block adds to memory in each of these clocks, on average.
  double added_bytes_a_clock() const { return 0; }
  // END EXERCISE ch07-budget
};

}  // namespace flashbook::backward
