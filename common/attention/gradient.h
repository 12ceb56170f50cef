/// \file
/// What the right gradients are, and how far from them a good kernel may be.
#pragma once
#include <vector>

#include "common/attention/oracle.h"

namespace flashbook {

/// The right values of a tensor [batch, heads, seqlen, head_dim], in FP64, and what a kernel's must keep.
struct TensorReference {
  TensorId id;
  std::vector<double> values;  ///< in the default layout
  std::vector<double> bound;   ///< by row, the largest error that passes
};

/// dQ, dK and dV of <O, dO> in FP64, from Q, K, V and dO as rounded. O and the log-sum-exp are computed anew,
/// so the rounding of those in `inputs` is an error of the kernel's. With P = softmax(S), S = scale * Q K^T:
///
///     D = rowsum(dO * O)    dV = P^T dO    dP = dO V^T    dS = P * (dP - D)
///     dQ = scale * dS K     dK = scale * dS^T Q
///
/// dK and dV are sums over the query heads of a group. A softcap's derivative is a factor on dS. Queries that
/// see nothing and keys that nobody sees have zeros, and a bound of zero.
///
/// Bounds are by row, as those of O are (see make_reference): twice the largest error of plain attention's
/// gradient in 64 rows (S, P, O, dP and dS rounded to the type, float sums), plus a floor. The floor is that
/// of O, and 2^-20 of the largest log-sum-exp of the group: a kernel's P is exp(S - log-sum-exp), and what
/// forward gave it may be off by so much. Errors are parts of the larger of the row's largest value and of
/// the root of the sum of its squared terms, with |dP| + |D| for dP - D: where that cancels, as in a row of
/// one key, the rounding of both is left.
///
/// Throws InputError for paged keys and for e4m3, of which there is no gradient.
std::vector<TensorReference> make_gradient_reference(const Shape& shape, const Inputs& inputs,
                                                     const Progress& progress = {});

}  // namespace flashbook
