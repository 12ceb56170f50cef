/// \file
/// Runs of a kernel, held against the oracle.
#pragma once
#include <string>

#include "common/attention/inputs.h"
#include "common/device/device.h"
#include "tests/mutation/subject.h"

namespace flashbook::mutation {

/// A problem with its inputs and its poisoned outputs on the machine of this build.
class Problem {
 public:
  explicit Problem(const Shape& shape);
  /// Throws DeviceError if the machine reports something.
  void solve(Attention attention) const;
  /// Whether what `solve` left is right: empty, or where it is wrong.
  std::string verdict() const;

 private:
  Shape shape_;
  Inputs inputs_;
  device::Buffer q_, k_, v_, o_, lse_;
};

/// What one run comes to: empty if the result is right, else what the machine reported, or that the result is
/// wrong and where. A report has no launch in front.
std::string try_once(Attention attention, const Shape& shape);

/// The first report of several runs, in whatever ways the machine of this build has: every mode and several
/// seeds in the simulator, once on a GPU. Empty if all are right.
std::string try_in_every_way(Attention attention, const Shape& shape);

}  // namespace flashbook::mutation
