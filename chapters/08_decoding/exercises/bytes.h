/// \file
/// Exercise ch08-bytes: the size of a cache, with paper and pencil.
#pragma once
#include <algorithm>
#include <cmath>

namespace flashbook::decoding {

// A model and a card. Everything is in bf16, two bytes per element, unless stated otherwise. The sizes below
// are those of Llama-3-8B (80 layers and 64 query heads are Llama-2-70B) and of an H200 in this chapter's
// kernels; G is 10^9 and T is 10^12; a multiply-add counts as two FLOPs.
//
// Latent attention, as in DeepSeek-V3, stores one latent of `latent` elements and a key of `position`
// elements for all heads of a layer together. A score uses all of them; the value is the latent.
//
// `try` checks each formula with the sizes below and others; the grader uses more. Sizes are double,
// so a quotient keeps its fraction; std::floor and std::ceil make it whole. Functions may call those above
// them.
struct Cache {
  double layers = 32, heads = 32, kv_heads = 8, head_dim = 128;
  double latent = 512, position = 64;
  double memory = 141e9, weights = 16e9;  // bytes of device memory, and of the model's weights
  double bytes_per_second = 4.3e12, flops_per_second = 790e12;
  double tokens = 8192, sequences = 16, parts = 16;  // per sequence; at once; parts of a sequence's keys

  // BEGIN EXERCISE ch08-bytes: what a cache weighs
  // The model generates `tokens` tokens after the first, without a cache: the first new token needs the keys
  // of 1 token, the last those of `tokens`. How many keys of one key head are computed in a layer?
  double keys_without_cache() const { return 0; }
  // Bytes of a token's keys and values in all layers; the same if each query head had its own key head; and
  // with latent attention.
  double token_bytes() const { return 0; }
  double token_bytes_ungrouped() const { return 0; }
  double token_bytes_of_latent() const { return 0; }
  // How many sequences of `tokens` tokens fit in the GPU's memory in addition to the weights?
  double sequences_that_fit() const { return 0; }
  // The least microseconds that one layer's attention can take for `sequences` sequences of `tokens` tokens,
  // one query each.
  double microseconds() const { return 0; }
  // One sequence, its keys split into `parts` parts: bytes of a layer's partial results, in float32.
  double partial_bytes() const { return 0; }
  // FLOPs of attention per byte of keys and values: for a group of query heads, and for latent attention with
  // one query head.
  double intensity_of_group() const { return 0; }
  double intensity_of_latent_head() const { return 0; }
  // From how many query heads on does latent attention take longer to compute than to read?
  double heads_at_ridge() const { return 0; }
  // END EXERCISE ch08-bytes
};

}  // namespace flashbook::decoding
