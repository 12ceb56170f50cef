/// \file
/// The verdicts of a check on an operation's outputs.
#pragma once
#include <vector>

#include "common/attention/check.h"

namespace flashbook {

/// The verdict on one of an operation's outputs.
struct TensorVerdict {
  TensorId tensor;
  Verdict verdict;
};

std::vector<TensorVerdict> by_tensor(const CheckResult& result);

}  // namespace flashbook
