/// \file
/// Exercise ch10-hops: what a hop costs, from paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::many_gpus {

// The formulas for one hop, and the sizes they use. Q, K, V and O are in bf16, two bytes per element; the
// sums of gradients that travel are in float32. `tokens` is the number per rank. A multiply-add counts as two
// FLOPs, and a backward pass has 2.5 times the FLOPs of a forward pass. G is 10^9, T is 10^12.
//
// `try` checks each formula with the sizes below and others; the grader uses more. Sizes are double,
// so a quotient keeps its fraction.
struct Hop {
  double ranks = 2, tokens = 32768, heads = 16, kv_heads = 16, head_dim = 128;
  double flops_per_second = 790e12;  // of one rank's kernel
  double bytes_per_second = 391e9;   // sent by a rank while it receives as many

  // BEGIN EXERCISE ch10-hops: what a hop costs
  // Bytes that a rank sends at a hop of the forward ring: its keys and values.
  double bytes_forward() const { return 0; }
  // At a hop of the backward ring: keys and values, and the sums of their gradients.
  double bytes_backward() const { return 0; }
  // How many tokens per rank hide a hop of the forward ring without a mask? And in zigzag order under a
  // causal mask, where half of every part is visible?
  double least_tokens() const { return 0; }
  double least_tokens_causal() const { return 0; }
  // And of the backward ring, without a mask.
  double least_tokens_backward() const { return 0; }
  // Tokens are distributed in contiguous chunks, and the mask is causal. In a long sequence, how many times
  // as much work as an average rank does the last one have?
  double last_rank() const { return 0; }
  // Bytes that a rank sends in Ulysses, there and back: Q, K, V and O, except what it keeps. The number of
  // key heads is a multiple of the number of ranks.
  double bytes_ulysses() const { return 0; }
  // When decoding with one query for each of `heads` heads, each rank merges all parts of a share of the
  // heads. How many bytes of parts, float32 results and their log-sum-exps, does a rank send?
  double bytes_decoding() const { return 0; }
  // END EXERCISE ch10-hops
};

}  // namespace flashbook::many_gpus
