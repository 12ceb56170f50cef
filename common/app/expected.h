/// \file
/// What an operation's inputs are, and what its outputs must be.
#pragma once
#include <vector>

#include "common/app/report.h"
#include "common/attention/gradient.h"
#include "common/attention/inputs.h"
#include "common/attention/operation.h"

namespace flashbook {

/// make_inputs of Q, K and V, and what an operation has besides: of backward, O and the log-sum-exp as a
/// forward pass leaves them, and dO of N(0, 1).
Inputs make_inputs(Operation operation, const Shape& shape, InputKind kind, uint64_t seed);

/// The right answer, by the FP64 oracle of the operation.
class Expected {
 public:
  /// For `rows` of O, ascending. Of a gradient every row is expected, whatever `rows` are.
  Expected(Operation operation, const Shape& shape, const Inputs& inputs, std::vector<int64_t> rows,
           const Progress& progress = {});

  /// The verdict on each of the operation's outputs.
  std::vector<TensorVerdict> judge(const Outputs& outputs) const;

  /// Of forward and decode; of backward it has no rows.
  const Reference& forward() const { return forward_; }

 private:
  Shape shape_;
  Reference forward_;
  std::vector<TensorReference> gradients_;
};

}  // namespace flashbook
