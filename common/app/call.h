/// \file
/// One call of a chapter: its tensors in the memory of the machine that runs it.
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

/// An operation's inputs where a chapter runs: in the shape's types, with its scales, in its layout, and the
/// tables that it has. Uploaded once, for any number of calls.
class UploadedInputs {
 public:
  /// Throws device::UsageError if there is not enough memory.
  UploadedInputs(Operation operation, const Shape& shape, const Inputs& inputs, device::Place place);

  /// Room for inputs, poisoned, to be filled there. Throws likewise.
  UploadedInputs(Operation operation, const Shape& shape, device::Place place);

  /// Pointers to the inputs, their scales and tables; outputs and workspace are null.
  const Tensors& tensors() const { return tensors_; }
  device::Place place() const { return place_; }

  const device::Buffer& values(TensorId id) const { return find(id).values; }  ///< in the shape's layout
  const device::Buffer& scales(TensorId id) const { return find(id).scales; }  ///< float; of e4m3, else empty
  const device::Buffer& means(TensorId id) const {
    return find(id).means;
  }  ///< float; of a mean-subtracted K or V

 private:
  struct Input {
    TensorId id;
    device::Buffer values, scales, means;
  };

  const Input& find(TensorId id) const;
  void add(Input input);
  void upload_tables(const Shape& shape);

  device::Place place_;
  std::vector<Input> inputs_;
  std::vector<device::Buffer> tables_;
  device::Buffer d_lse_;
  Tensors tensors_;
};

/// One step on one shape, with outputs and a workspace of its own. The inputs outlive it.
class Call {
 public:
  /// Gives the tensors to the device's default stream, or works on the host, and may return before it is
  /// done.
  using Launch = std::function<void(const Tensors&)>;

  /// A step that can run the shape. Throws device::UsageError if there is not enough memory.
  Call(const Chapter& chapter, const Shape& shape, const UploadedInputs& inputs, int step,
       const device::Together& together = {});

  /// What is no step of a chapter.
  Call(Operation operation, const Shape& shape, const UploadedInputs& inputs, int64_t workspace_bytes,
       Launch launch);

  /// Makes NaN of the outputs, which they are before the first run, too.
  void poison();
  /// Runs until all is done. Throws DeviceError if the machine reports something.
  void run() const;
  /// Seconds of one run with the L2 cache flushed before it: by the device's clock, or by the host's. For a
  /// step whose tensors are dealt out, the copies there and back do not count.
  double time() const;

  /// The outputs.
  Outputs download() const;
  /// The outputs, but of tensors with a row for each query only `rows`, ascending, the others NaN.
  Outputs download(const std::vector<int64_t>& rows) const;
  /// All outputs as they lie, one after another: to be compared bit by bit.
  std::vector<std::byte> download_bytes() const;

  /// Whether the bytes of the workspace that must be 0 before a launch (Step::zeroed) are 0 now.
  bool has_zeros() const;

  /// Bytes of the device's memory that are taken since the workspace was about to be: the workspace, and the
  /// code of kernels that ran for the first time. 0 on the host.
  int64_t workspace_taken() const;

 private:
  struct Output {
    TensorId id;
    device::Buffer buffer;
  };

  int64_t memory_free() const;

  Shape shape_;
  device::Place place_;
  Launch launch_;
  std::unique_ptr<DealtOut> dealt_out_;  ///< of a step that has it; then nothing is launched
  std::vector<Output> outputs_;
  int64_t free_before_workspace_;
  device::Buffer workspace_;
  int64_t zeroed_ = 0;  ///< its first bytes, which must be 0 before a launch
  Tensors tensors_;
};

/// One untimed run of `step` from host memory to host memory. For checks and tests.
Outputs run_once(const Chapter& chapter, const Shape& shape, const Inputs& inputs, int step);

/// The middle one of some runs' times.
double median(std::vector<double> seconds);

}  // namespace flashbook
