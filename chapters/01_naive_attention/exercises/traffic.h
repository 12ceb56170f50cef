/// \file
/// Exercise ch01-traffic: what chapter 1's kernels compute and move, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::naive {

// The problem: batch 1; query heads that share fewer heads of keys and values; as many keys as queries;
// causal; f16, so 2 bytes per element of Q, K, V, O and P, and 4 per element of S.
//
// Count a causal mask as half of all pairs, and leave out the log-sum-exp.
//
// Each function is a formula of these sizes. `try` asks it for the sizes below and for others, the grader for
// sizes that are not published. Sizes are double, so a quotient keeps its fraction; std::floor and std::ceil
// make it whole. Functions may call those above them.
struct Traffic {
  double heads = 32, kv_heads = 8, tokens = 2048, head_dim = 64;

  // BEGIN EXERCISE ch01-traffic: bytes and FLOPs on paper
  // Pairs of a query and a key that it sees, in one head.
  double pairs() const { return 0; }
  // From here on of all heads together. Floating-point operations of both products.
  double flops() const { return 0; }
  // Bytes of Q, K, V and O together.
  double input_output_bytes() const { return 0; }
  // Bytes of device memory that S and P take. They are stored whole, masked or not.
  double score_bytes() const { return 0; }
  // Bytes that the three kernels of step 1 move: Q, K, V and O once, S and P as often as a kernel walks over
  // them; only the visible pairs are written and read.
  double step1_bytes() const { return 0; }
  // The same for the three kernels of step 4.
  double step4_bytes() const { return 0; }
  // FLOPs a byte of step 4.
  double flops_per_byte() const { return 0; }
  // END EXERCISE ch01-traffic
};

}  // namespace flashbook::naive
