/// \file
/// The reference gradients, and the error that a good kernel may have.
#pragma once
#include <vector>

#include "common/attention/oracle.h"

namespace flashbook {

/// The reference values for rows of a tensor [batch, heads, seqlen, head_dim], in FP64, and the bounds on a
/// kernel's errors.
struct TensorReference {
  TensorId id;
  std::vector<int64_t> rows;   ///< row numbers, ascending: (b * heads + h) * seqlen + i
  std::vector<double> values;  ///< [rows, head_dim]
  std::vector<double> bound;   ///< [rows], the largest error that passes
};

/// Returns dQ, dK and dV of <O, dO> in FP64, from the rounded Q, K, V and dO. O and the log-sum-exp are
/// recomputed, so their rounding in `inputs` is the kernel's error. With P = softmax(S), S = scale * Q K^T:
///
///     D = rowsum(dO * O) - dL    dV = P^T dO    dP = dO V^T    dS = P * (dP - D)
///     dQ = scale * dS K     dK = scale * dS^T Q
///
/// dL is the gradient of the log-sum-exp, `inputs.d_lse`, or 0 if that is empty. dK and dV are sums over the
/// query heads of a group. A softcap's derivative is a factor on dS, and terms that dropout removes from O
/// are removed from dP and dV. Queries that see no key, and keys that no query sees, have zeros and a bound
/// of zero.
///
/// Bounds are per row, like those of O (see make_reference): twice the largest error of the gradient of plain
/// attention in 64 rows (S, P, O, dP and dS rounded to the type, float sums), plus a floor. The floor is that
/// of O plus 2^-20 of the query's log-sum-exp, or for a key of the largest log-sum-exp in its group: a
/// kernel's P is exp(S - log-sum-exp), and the log-sum-exp from the forward pass may have this error. Errors
/// are relative to the row's largest value or, if larger, to the root of the sum of its squared terms, with
/// |dP| + |D| for dP - D: if that cancels, as in a row of one key, the rounding of both is left.
///
/// Throws InputError for paged keys and for e4m3, which have no gradient.
std::vector<TensorReference> make_gradient_reference(const Spec& spec, const Inputs& inputs,
                                                     const Progress& progress = {});

/// Makes a reference for only some rows of dQ, dK and dV, if all rows would take too long. A row of dK needs
/// O and the log-sum-exp of every query that sees its key. If `queries` are not all, these are taken from
/// `inputs`, except for those of `queries`, whose gradients show whether O and the log-sum-exp are right.
std::vector<TensorReference> make_gradient_reference(const Spec& spec, const Inputs& inputs,
                                                     std::vector<int64_t> queries, std::vector<int64_t> keys,
                                                     const Progress& progress = {});

/// The reference gradient of a problem's bias by distance.
struct BiasReference {
  std::vector<double> values;  ///< [heads, 2 * reach + 1]
  std::vector<double> bound;   ///< [heads, 2 * reach + 1], the largest error that passes
};

/// Returns the sum of dS over all pairs with the same distance, over all batch entries, in FP64. Each
/// distance has its own bound, like a row of dK. Throws like make_gradient_reference.
BiasReference make_bias_reference(const Spec& spec, const Inputs& inputs);

}  // namespace flashbook
