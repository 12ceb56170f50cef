/// \file
/// Exercise ch05-budget: tile sizes for head_dim 192 and others, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::fa3 {

// Step 4 for a head_dim of 192, in bf16: a producer, `consumers` consumers of 64 queries each, a ring of
// `stages` stages, tiles of `keys` keys. Sizes are in bytes; leave the barriers out, they take less than a
// hundred. A multiprocessor of an H200 has 65536 registers; 227 KB of shared memory for a block (1 KB is 1024
// bytes); tensor cores that do 4096 FLOPs per cycle, a multiply-add counted as two; 16 exponentials per
// cycle. Each function is a formula of these sizes. `try` calls it with the sizes below and with others, and
// the grader with sizes that are not published. Sizes are double, so a quotient keeps its fraction; use
// std::floor and std::ceil to round it. Functions may call those above them.
struct Budget {
  double head_dim = 192, consumers = 2, stages = 4, keys = 96;
  double seqlen_k = 4096, producer_registers = 40;

  // BEGIN EXERCISE ch05-budget: head_dim 192 on paper
  // The most keys that a tile can have, a multiple of 16, if Q and the ring must fit.
  double most_keys() const { return 0; }

  // With tiles of `keys` keys: the bytes of one stage of the ring, and the bytes of the block.
  double stage_bytes() const { return 0; }
  double shared_bytes() const { return 0; }
  // Arrivals that complete a phase of `empty`.
  double empty_arrivals() const { return 0; }
  // How often stage 0 is filled for all keys.
  double fillings() const { return 0; }
  // Registers per thread at the start, the same for all threads, a multiple of 8; and per thread of a
  // consumer, also a multiple of 8, once the producer has released all but `producer_registers`.
  double registers_at_start() const { return 0; }
  double registers_of_consumer() const { return 0; }
  // Registers that a consumer's thread needs: for O, for the scores of a tile, for P.
  double registers_o() const { return 0; }
  double registers_scores() const { return 0; }
  double registers_p() const { return 0; }
  // wgmma instructions that a consumer issues for one tile of keys, for scores and values together.
  double products() const { return 0; }
  // Cycles that one tile of keys takes for all consumers together: on the tensor cores, and for the
  // exponentials of its scores, without those of the corrections.
  double product_cycles() const { return 0; }
  double exponential_cycles() const { return 0; }
  // END EXERCISE ch05-budget
};

}  // namespace flashbook::fa3
