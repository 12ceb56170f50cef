/// \file
/// What the right answer is, and how far from it a good kernel may be.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "common/attention/tensors.h"

namespace flashbook {

/// The right answer for some rows, in FP64, and the bounds that a kernel's answer must keep.
struct Reference {
  std::vector<int64_t> rows;  ///< which rows of O: (b * heads + h) * seqlen_q + i, ascending
  std::vector<double> o;      ///< [rows, head_dim]; 0 where a row sees no key
  std::vector<double> lse;    ///< [rows]; -inf where a row sees no key
  double o_bound = 0;         ///< largest |O - oracle| that passes
  double lse_bound = 0;       ///< largest |LSE - oracle| that passes
};

/// Called now and then with the part that is done, 0 to 1, from one thread at a time.
using Progress = std::function<void(double)>;

/// Every row of O.
std::vector<int64_t> all_rows(const Shape& shape);

/// `count` rows of O, ascending and distinct: the first and the last row of the first and last head, then random ones. All rows if
/// there are no more than `count`.
std::vector<int64_t> sample_rows(const Shape& shape, int64_t count, uint64_t seed);

/// FP64 attention softmax(scale * Q K^T) V on the inputs as rounded, for `rows`, on all cores.
///
/// The bounds come from plain attention in the same precision, computed beside it for the same rows: float sums, S and P
/// rounded to shape.dtype, O rounded to its type. A kernel may err by twice what plain attention errs at worst, plus a
/// floor: a unit in the last place of the type at the largest |O| (LSE: 2^-20 of the largest |LSE|, at least of 1), since
/// plain attention may be exact by chance. For e4m3 O is BF16, and S and P are rounded to BF16 and e4m3.
Reference make_reference(const Shape& shape, const Inputs& inputs, std::vector<int64_t> rows,
                         const Progress& progress = {});

}  // namespace flashbook
