/// \file
/// Runs of a kernel, compared with the oracle.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "common/app/call.h"
#include "tests/mutation/subject.h"

namespace flashbook::mutation {

/// A kernel and a problem for it, on the machine of this build.
class Trial {
 public:
  Trial(const Kernel& kernel, Attention attention, const Spec& spec);
  /// Throws DeviceError if the machine reports something.
  void run() const { call_.run(); }
  /// Checks what `run` wrote: empty if right, otherwise where it is wrong.
  std::string verdict() const;
  /// Returns what `run` left in its workspace: float sums, which reveal the order of addition where rounded
  /// results do not.
  std::vector<std::byte> workspace() const;

 private:
  Operation operation_;
  Spec spec_;
  Inputs inputs_;
  UploadedInputs uploaded_;
  device::Buffer workspace_;
  Call call_;
};

/// Returns the result of one run: empty if right, otherwise the machine's report without the launch, or where
/// the result is wrong.
std::string try_once(const Kernel& kernel, Attention attention, const Spec& spec);

/// Returns the first report of several runs: every mode and several seeds in the simulator, one run on a GPU.
/// Empty if all are right.
std::string try_in_every_way(const Kernel& kernel, Attention attention, const Spec& spec);

}  // namespace flashbook::mutation
