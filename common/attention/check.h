/// \file
/// Is this output right? A checker that NaN, a stale buffer or one wrong element cannot fool.
#pragma once
#include <string>

#include "common/attention/oracle.h"

namespace flashbook {

/// The verdict on one tensor.
struct Verdict {
  bool ok = false;
  double max_error = 0;     ///< largest absolute error; NaN or infinite if a compared value is
  double bound = 0;         ///< what max_error was held against
  double relative_rms = 0;  ///< ||out - reference|| / ||reference||
  std::string worst;        ///< where: "batch 0, head 1, query 17, dim 5: got 0.25, want 0.5"
};

/// The verdicts on O and on the log-sum-exp.
struct CheckResult {
  Verdict o, lse;
  bool ok() const { return o.ok && lse.ok; }
};

/// Holds every element of the reference's rows against the bounds of the reference. An error passes only if
/// `error <= bound`, so NaN never passes; -inf equals -inf only. Sizes that differ from `shape` fail.
CheckResult check(const Shape& shape, const Reference& reference, const Outputs& outputs);

/// Compares every element of two chapters' outputs of one shape. Each bound is the sum of the two chapters'.
CheckResult compare(const Shape& shape, const Outputs& outputs, const Outputs& before, double o_bound,
                    double lse_bound);

}  // namespace flashbook
