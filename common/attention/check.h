/// \file
/// Is this output right? A checker that NaN, a stale buffer or one wrong element cannot fool.
#pragma once
#include <span>
#include <string>

#include "common/attention/gradient.h"
#include "common/attention/oracle.h"

namespace flashbook {

/// The verdict on one tensor. Its worst element is the one whose error is the largest part of its own bound.
struct Verdict {
  bool ok = false;
  double max_error = 0;     ///< the worst element's absolute error; NaN or infinite if its value is
  double bound = 0;         ///< what that was held against
  double relative_rms = 0;  ///< ||out - reference|| / ||reference||
  std::string worst;        ///< where: "batch 0, head 1, query 17, dim 5: got 0.25, want 0.5"
};

/// The verdicts on O and on the log-sum-exp.
struct CheckResult {
  Verdict o, lse;
  bool ok() const { return o.ok && lse.ok; }
};

/// Holds every element of the reference's rows against its row's bounds. An error passes only if
/// `error <= bound`, so NaN never passes; -inf equals -inf only. Sizes that differ from `shape` fail.
CheckResult check(const Shape& shape, const Reference& reference, const Outputs& outputs);

/// The same of a gradient. `got` is in the default layout.
Verdict check(const Shape& shape, const TensorReference& reference, std::span<const float> got);

/// Compares every element of two chapters' outputs of one shape, each of which keeps the bounds of
/// `reference`: so they differ by twice these at most. `reference` is of this shape, or of one whose first
/// heads are this one's. A row that the reference lacks may differ, as a part of its largest |O|, by as much
/// as any that it has; its log-sum-exp by as much as any.
CheckResult compare(const Shape& shape, const Outputs& outputs, const Outputs& before,
                    const Reference& reference);

}  // namespace flashbook
