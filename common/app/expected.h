/// \file
/// An operation's inputs, and the outputs that the oracle computes for them.
#pragma once
#include <vector>

#include "common/app/chapter.h"
#include "common/app/verdict.h"
#include "common/attention/gradient.h"
#include "common/attention/inputs.h"
#include "common/attention/operation.h"

namespace flashbook {

/// Completes an operation's inputs beyond Q, K and V: for backward, O and the log-sum-exp of a forward pass,
/// and dO from N(0, 1). The oracle computes the whole forward pass; if that would take long, the last step of
/// `forward` does, if it can run the problem. Returns true in that case.
bool complete_inputs(Operation operation, const Spec& spec, uint64_t seed, Inputs& inputs,
                     const Chapter* forward = nullptr);

/// Calls make_inputs for Q, K and V, and completes the inputs.
Inputs make_inputs(Operation operation, const Spec& spec, InputKind kind, uint64_t seed,
                   const Chapter* forward = nullptr);

/// The reference answer, from the operation's FP64 oracle.
class Expected {
 public:
  /// Computes the answer for `rows` of O, ascending. For a gradient these are rows of dQ; if they are all
  /// rows, every row of dK and dV is checked as well, otherwise as many random rows.
  Expected(Operation operation, const Spec& spec, const Inputs& inputs, std::vector<int64_t> rows,
           const Progress& progress = {});

  /// Returns the verdict on each of the operation's outputs.
  std::vector<TensorVerdict> judge(const Outputs& outputs) const;

  /// Returns the reference for forward and decode; for backward it has no rows.
  const Reference& forward() const { return forward_; }

 private:
  Spec spec_;
  Reference forward_;
  std::vector<TensorReference> gradients_;
};

}  // namespace flashbook
