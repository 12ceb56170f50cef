/// \file
/// Inputs: random, and made to hurt.
#pragma once
#include <cstdint>

#include "common/attention/tensors.h"

namespace flashbook {

/// What the values of Q, K and V look like.
enum class InputKind {
  normal,        ///< N(0, 1)
  outliers,      ///< N(0, 1) + N(0, 100) * Bernoulli(0.001), FlashAttention-3's model (arXiv 2407.08608, 4.3)
  channels,      ///< N(0, 1), and +-10 more in head_dim / 32 columns of a head, the same of Q and of K
  large_scores,  ///< scaled scores reach +-1e4: exp overflows unless the maximum is subtracted
  one_hot,       ///< each query matches one key so strongly that the softmax is 1 there and 0 elsewhere
  all_equal,     ///< every element of a tensor has one value: the softmax is uniform
  drifting,  ///< N(0, 1) and a direction of each head: along the keys the scores of every second query rise
             ///< by 20 at the default scale, those of the others fall. A running maximum is overtaken again
             ///< and again, from whichever end a kernel begins
};

/// Inputs of `shape`, rounded to shape.dtype, as round_inputs does. The same seed gives the same values on
/// every machine and with any number of threads; `seed` and the element's index determine a value. What is
/// too large for a type becomes its largest value. Paged keys and values are those without pages, each row in
/// its page, and NaN in every row that no sequence uses.
Inputs make_inputs(const Shape& shape, InputKind kind, uint64_t seed);

/// What no scaled score exceeds in size, nor one before the scale: the longest row of Q times the longest of
/// K, times the scale if that is above 1 (the inequality of Cauchy and Schwarz).
double largest_score(const Shape& shape, const Inputs& inputs);

}  // namespace flashbook
