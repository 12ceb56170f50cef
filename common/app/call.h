/// \file
/// One call of a chapter, with its tensors in the memory of the machine that runs it.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "common/app/chapter.h"
#include "common/attention/operation.h"
#include "common/attention/tensors.h"
#include "common/device/device.h"

namespace flashbook {

/// An operation's inputs in the memory of the machine that runs a chapter: in the problem's types and layout,
/// with its scales and tables. They are uploaded once, for any number of calls.
class UploadedInputs {
 public:
  /// Throws device::UsageError if there is not enough memory.
  UploadedInputs(Operation operation, const Spec& spec, const Inputs& inputs, device::Place place);

  /// Allocates poisoned inputs, to be filled in place. Throws device::UsageError if memory does not suffice.
  UploadedInputs(Operation operation, const Spec& spec, device::Place place);

  /// Returns pointers to the inputs, their scales and tables; outputs and workspace are null.
  const Tensors& tensors() const { return tensors_; }
  device::Place place() const { return place_; }

  const device::Buffer& values(TensorId id) const { return find(id).values; }  ///< in the problem's layout
  const device::Buffer& scales(TensorId id) const { return find(id).scales; }  ///< float; e4m3 only
  const device::Buffer& means(TensorId id) const { return find(id).means; }    ///< float; if subtracted

 private:
  struct Input {
    TensorId id;
    device::Buffer values, scales, means;
  };

  const Input& find(TensorId id) const;
  void add(Input input);
  void upload_tables(const Spec& spec);

  device::Place place_;
  std::vector<Input> inputs_;
  std::vector<device::Buffer> tables_;
  device::Buffer d_lse_;
  Tensors tensors_;
};

/// A step applied to a problem, with its own outputs and workspace. The inputs must outlive it.
class Call {
 public:
  /// Starts the work on the device's default stream, or runs it on the host. May return before it is done.
  using Launch = std::function<void(const Tensors&)>;

  /// `step` must be able to run the problem. Throws device::UsageError if there is not enough memory.
  Call(const Chapter& chapter, const Spec& spec, const UploadedInputs& inputs, int step,
       const device::Together& together = {});

  /// Prepares a call of an implementation that is not a step of a chapter.
  Call(Operation operation, const Spec& spec, const UploadedInputs& inputs, int64_t workspace_bytes,
       Launch launch);

  /// Sets the outputs to NaN, as they are before the first run.
  void poison();
  /// Runs the step and waits until it has finished. Throws DeviceError if the machine reports an error.
  void run() const;
  /// Returns the seconds of one run after flushing the L2 cache, measured by the clock of the device or the
  /// host. For a step whose tensors are distributed, copying them there and back does not count.
  double time() const;

  Outputs download() const;
  /// Returns the outputs. For tensors with a row per query, reads only `rows`, which ascend; all other rows
  /// are NaN.
  Outputs download(const std::vector<int64_t>& rows) const;
  /// Returns the bytes of all outputs, one after another, for a bitwise comparison.
  std::vector<std::byte> download_bytes() const;

  /// Returns whether the bytes of the workspace that must be 0 before a launch (Step::zeroed) are 0 now.
  bool has_zeros() const;

  /// Returns the bytes of device memory allocated since just before the workspace: the workspace, and the
  /// code of kernels that ran for the first time. 0 on the host.
  int64_t workspace_taken() const;

 private:
  struct Output {
    TensorId id;
    device::Buffer buffer;
  };

  int64_t memory_free() const;

  Spec spec_;
  device::Place place_;
  Launch launch_;
  std::unique_ptr<DealtOut> dealt_out_;  ///< for steps that distribute their inputs; `launch_` is then unused
  std::vector<Output> outputs_;
  int64_t free_before_workspace_;
  device::Buffer workspace_;
  int64_t zeroed_ = 0;  ///< number of leading bytes that must be 0 before a launch
  Tensors tensors_;
};

/// Runs `step` once, untimed, from host memory to host memory, for checks and tests.
Outputs run_once(const Chapter& chapter, const Spec& spec, const Inputs& inputs, int step);

/// Returns the median of some runs' times.
double median(std::vector<double> seconds);

}  // namespace flashbook
