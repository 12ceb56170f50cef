/// \file
/// Exercise ch01-traffic: the work and traffic of chapter 1's kernels, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::naive {

// The problem: batch 1; query heads that share fewer heads of keys and values; as many keys as queries;
// causal; f16, so 2 bytes per element of Q, K, V, O and P, and 4 per element of S.
//
// Count a causal mask as half of all pairs, and leave out the log-sum-exp.
//
// Each function is a formula in these sizes. `try` calls it with the sizes below and with others, and the
// grader with sizes that are not published. Sizes are double, so a quotient keeps its fraction; std::floor
// and std::ceil round it. Functions may call those above them.
struct Traffic {
  double heads = 32, kv_heads = 8, tokens = 2048, head_dim = 64;

  // BEGIN EXERCISE ch01-traffic: bytes and FLOPs on paper
  // Pairs of a query and a key that it sees, in one head.
  double pairs() const { return 0; }
  // From here on, count all heads together. Floating-point operations of both products.
  double flops() const { return 0; }
  // Bytes of Q, K, V and O together.
  double input_output_bytes() const { return 0; }
  // Bytes of device memory for S and P. They are stored in full, masked or not.
  double score_bytes() const { return 0; }
  // Bytes that the three kernels of step 1 move: Q, K, V and O once, S and P as often as a kernel passes
  // over them. Only the visible pairs are written and read.
  double step1_bytes() const { return 0; }
  // Bytes that the three kernels of step 4 move.
  double step4_bytes() const { return 0; }
  // FLOPs per byte in step 4.
  double flops_per_byte() const { return 0; }
  // END EXERCISE ch01-traffic
};

}  // namespace flashbook::naive
