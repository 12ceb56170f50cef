/// \file
/// Checks an output. NaN, a stale buffer or a single wrong element cannot pass.
#pragma once
#include <span>
#include <string>

#include "common/attention/gradient.h"
#include "common/attention/oracle.h"

namespace flashbook {

/// The verdict on one tensor. Its worst element is the one whose error is the largest fraction of the
/// element's own bound.
struct Verdict {
  bool ok = false;
  double max_error = 0;     ///< absolute error of the worst element; NaN or infinite if its value is
  double bound = 0;         ///< bound of that element
  double relative_rms = 0;  ///< ||out - reference|| / ||reference||
  std::string worst;        ///< position and values: "batch 0, head 1, query 17, dim 5: got 0.25, want 0.5"
};

/// The verdicts on O and on the log-sum-exp.
struct CheckResult {
  Verdict o, lse;
  bool ok() const { return o.ok && lse.ok; }
};

/// Compares every element of the reference's rows with its row's bounds. An error passes only if
/// `error <= bound`, so NaN never passes; -inf equals only -inf. Sizes that differ from `spec` fail.
CheckResult check(const Spec& spec, const Reference& reference, const Outputs& outputs);

/// Compares a gradient with its reference in the same way. `got` is in the default layout.
Verdict check(const Spec& spec, const TensorReference& reference, std::span<const float> got);

/// Compares every element of two chapters' outputs for one problem. Each is within the bounds of `reference`,
/// so they differ by at most twice these. `reference` is for this problem, or for a problem whose leading
/// heads are these. A row that the reference lacks may differ, in O relative to its largest |O| and in its
/// log-sum-exp, by as much as any row that it has.
CheckResult compare(const Spec& spec, const Outputs& outputs, const Outputs& before,
                    const Reference& reference);

}  // namespace flashbook
