/// \file
/// The reference answer, and the error that a good kernel may have.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "common/attention/tensors.h"

namespace flashbook {

/// The reference answer for some rows, in FP64, and the bounds on a kernel's errors.
struct Reference {
  std::vector<int64_t> rows;      ///< row numbers in O: (b * heads + h) * seqlen_q + i, ascending
  std::vector<double> o;          ///< [rows, head_dim]; 0 where a row sees no key
  std::vector<double> lse;        ///< [rows]; -inf where a row sees no key
  std::vector<float> plain_o;     ///< [rows, head_dim], plain attention in the problem's precision
  std::vector<double> o_bound;    ///< [rows], the largest |O - oracle| that passes
  std::vector<double> lse_bound;  ///< [rows], the largest |LSE - oracle| that passes
};

/// Called now and then with the completed fraction, 0 to 1, from one thread at a time.
using Progress = std::function<void(double)>;

/// Returns the numbers of all rows of O.
std::vector<int64_t> all_rows(const Sizes& sizes);

/// Returns `count` distinct rows of O, ascending: the first and the last row of the first and of the last
/// head, then random ones. Returns all rows if there are no more than `count`.
std::vector<int64_t> sample_rows(const Sizes& sizes, int64_t count, uint64_t seed);

/// Return the numbers of rows of K and V, all or `count` of them: (b * kv_heads + h) * seqlen_k + j.
std::vector<int64_t> all_key_rows(const Sizes& sizes);
std::vector<int64_t> sample_key_rows(const Sizes& sizes, int64_t count, uint64_t seed);

/// Computes FP64 attention softmax(scale * Q K^T) V on the rounded inputs, for `rows` (ascending), on all
/// cores, under the problem's visibility and score function. Never reads invisible pairs. Pages are gathered.
///
/// The bounds come from plain attention in the same precision, computed alongside for the same rows: float
/// sums, S and P rounded to Sizes::dtype (S beyond f16's range to bf16), O rounded to its type. (For e4m3, O
/// is BF16, S is rounded to BF16, and P to e4m3 before the division by the row's sum, since in a long row
/// most quotients would be rounded to 0. The log-sum-exp is that of the rounded P: a kernel may sum the
/// values that it multiplies.)
///
/// Bounds are per row. The values and errors of a row with a thousand keys are far smaller than those of a
/// row with one key, and a common bound would hide a key lost in the longer row. A kernel's error may be
/// twice that of plain attention, plus a floor, since plain attention may be exact by chance:
/// - Errors of O are relative to the row's largest |O|, and the error of plain attention is the largest one
///   in 64 consecutive rows: in a single row it can be small by chance, and relative errors of rows hardly
///   depend on how many keys they see. The floor is 2^-10 for f16 and 2^-7 for bf16: every kernel rounds P
///   and O, each by half a unit in the last place at most. For f32, whose sums differ with every order, it is
///   2^-18. A row that sees one key has exactly P = 1, and in f16 and bf16 O is that row of V, bit by bit,
///   unless dropout scales it: the bound is 0.
/// - Errors of the log-sum-exp are bounded in the same way, but relative to the effect of rounded scores on
///   it, the root of the sum of (P * max(1, |S|))^2 over the row. The floor is 2^-20 of the log-sum-exp, at
///   least of 1. For e4m3 a 16th of the same root is added, since a sum of rounded P may have this error.
///
/// The bound detects the following faults. A lost key changes a row by P * |V|, while the bound is a fraction
/// of |O|, which falls only with the square root of the number of keys, n. With N(0, 1) inputs a key of
/// average probability, 1 / n, can be lost undetected from about 40,000 keys on in f16, 550 in bf16 and 45 in
/// e4m3, and never in f32. With more keys, the loss of a key that many queries see is still
/// detected, by the query that gives it the most weight: with 4000 keys and 4000 queries, every lost key is
/// detected in bf16 and 96 % are in e4m3, where misses begin at about 1000. The last keys under a causal
/// mask, which few queries see, are the hardest.
Reference make_reference(const Spec& spec, const Inputs& inputs, std::vector<int64_t> rows,
                         const Progress& progress = {});

}  // namespace flashbook
