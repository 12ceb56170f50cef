/// \file
/// Random inputs, some of them chosen to cause errors.
#pragma once
#include <cstdint>

#include "common/attention/tensors.h"

namespace flashbook {

/// The distribution of the values of Q, K and V.
enum class InputKind {
  normal,        ///< N(0, 1)
  outliers,      ///< N(0, 1) + N(0, 100) * Bernoulli(0.001), FlashAttention-3's model (arXiv 2407.08608, 4.3)
  channels,      ///< N(0, 1), and +-10 more in head_dim / 32 columns of a head, the same in Q and in K
  large_scores,  ///< scaled scores reach +-1e4: exp overflows unless the maximum is subtracted
  one_hot,       ///< each query matches one key so strongly that the softmax is 1 there, else 0
  all_equal,     ///< all elements of a tensor are equal: the softmax is uniform
  drifting,      ///< N(0, 1) plus a direction per head: along the keys, scores of every second query rise by
                 ///< 20 at the default scale and all others fall, so that a running maximum is exceeded
                 ///< repeatedly, whichever end a kernel starts from
};

/// Returns inputs of `spec`, rounded to spec.dtype, as round_inputs does. The same seed gives the same values
/// on every machine and with any number of threads; `seed` and the element's index determine a value. Values
/// too large for a type become its largest value. Paged keys and values are those without pages, each row in
/// its page, and NaN in every row that no sequence uses.
Inputs make_inputs(const Spec& spec, InputKind kind, uint64_t seed);

/// Returns an upper bound on the absolute value of all scores, scaled and unscaled: the length of the longest
/// row of Q times that of K, times the scale if it is above 1 (Cauchy-Schwarz inequality).
double largest_score(const Sizes& sizes, const Inputs& inputs);

}  // namespace flashbook
