/// \file
/// Measures one cell: checks it on some rows, then times it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/grid.h"
#include "common/app/call.h"
#include "common/app/report.h"
#include "common/device/resources.h"

namespace flashbook {

/// The outcome of a cell. Either skipped is set, or wrong, or all other members.
struct Measurement {
  std::string skipped;  ///< reason why it could not run here, and what to do
  std::string wrong;    ///< description of what was wrong with its result, which was not timed

  double seconds = 0;          ///< median of the timed runs
  int runs = 0;                ///< number of timed runs
  double spread = 0;           ///< interquartile range of the runs divided by their median
  bool over_limit = false;     ///< whether the first run exceeded the limit for all, so it is the only one
  double tensor_bytes = 0;     ///< size of Q, K, V, O and log-sum-exp
  double workspace_bytes = 0;  ///< additional memory, according to the chapter
  std::optional<double>
      workspace_measured;  ///< on a GPU, the same from its free memory, including the kernels' code
  std::vector<device::KernelResources> kernels;  ///< on a GPU, each kernel's resources
  std::vector<TensorVerdict> verdicts;           ///< one per output, in the operation's order
};

/// Measures one cell after another. Keeps the inputs, which shapes of equal size and type share.
class Meter {
 public:
  /// Spends `max_seconds` on the timed runs of a cell: 3 to 300 runs, or a single one if it exceeds the
  /// limit.
  explicit Meter(double max_seconds) : max_seconds_(max_seconds) {}

  /// Never throws for errors of a cell; these are recorded in the measurement.
  Measurement measure(const Cell& cell);

 private:
  struct StoredInputs {
    Operation operation;
    Spec spec;
    Inputs host;
    UploadedInputs uploaded;
  };

  const StoredInputs& inputs_for(const Cell& cell);
  void measure_right(const Cell& cell, Measurement& result);

  double max_seconds_;
  std::optional<StoredInputs> inputs_;
  std::string device_failure_;  ///< after a kernel has failed, CUDA rejects every later call of the process
};

}  // namespace flashbook
