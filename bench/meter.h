/// \file
/// Measures one cell: checks it on some rows, then times it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/grid.h"
#include "common/app/call.h"
#include "common/attention/check.h"
#include "common/device/resources.h"

namespace flashbook {

/// What came of one cell. Exactly one of these: skipped is set, wrong is set, or the rest is.
struct Measurement {
  std::string skipped;  ///< why it could not run here, naming the cure
  std::string wrong;    ///< what was wrong with its result; it was not timed

  double seconds = 0;          ///< median of the timed runs
  int runs = 0;                ///< how many
  double spread = 0;           ///< interquartile range of the runs over their median
  bool over_limit = false;     ///< one run took longer than all were meant to, so there is only one
  double tensor_bytes = 0;     ///< Q, K, V, O and log-sum-exp
  double workspace_bytes = 0;  ///< memory beyond those, as the chapter says
  std::optional<double>
      workspace_measured;  ///< on a GPU, the same as its free memory says; with the kernels' own code
  std::vector<device::KernelResources> kernels;  ///< on a GPU, what each kernel takes
  CheckResult check;
};

/// Measures cell after cell. Keeps the inputs, which shapes of one size and type share.
class Meter {
 public:
  /// `max_seconds` of timed runs a cell: at least 3 runs and at most 300, but one alone if that takes longer
  /// than the limit.
  explicit Meter(double max_seconds) : max_seconds_(max_seconds) {}

  /// Never throws for what a cell can do wrong: that is in the measurement.
  Measurement measure(const Cell& cell);

 private:
  struct StoredInputs {
    Shape shape;
    Inputs host;
    UploadedInputs uploaded;
  };

  const StoredInputs& inputs_for(const Cell& cell);
  void measure_right(const Cell& cell, Measurement& result);

  double max_seconds_;
  std::optional<StoredInputs> inputs_;
  std::string device_failure_;  ///< once a kernel failed, CUDA refuses every later call of this process
};

}  // namespace flashbook
