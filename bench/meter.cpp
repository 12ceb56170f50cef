#include "bench/meter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "common/app/report.h"
#include "common/attention/cost.h"
#include "common/attention/inputs.h"

namespace flashbook {
namespace {

using device::Buffer;
using device::Place;

constexpr int kCheckedRows =
    32;  // the tests hold every row; here a wrong kernel must only be caught before it is timed
constexpr int kLeastRuns = 3, kMostRuns = 300;
constexpr double kMemoryMargin = 512e6;  // left to the L2 flush's buffer and to the driver
constexpr uint64_t kSeed = 1;

/// Q, K, V and their scales are taken as given; the rest of a call's memory, and the call.
class Call {
 public:
  Call(const Cell& cell, const Tensors& inputs)
      : cell_(cell),
        o_(place(), cell.shape.q_elements() * size_of(output_type(cell.shape.dtype))),
        lse_(place(), cell.shape.q_rows() * sizeof(float)),
        free_before_(memory_free()),
        workspace_(place(), cell.chapter->workspace_bytes(cell.shape, cell.step)),
        tensors_(inputs) {
    tensors_.o = o_.data();
    tensors_.lse = static_cast<float*>(lse_.data());
    tensors_.workspace = workspace_.data();
  }

  void run() const { cell_.chapter->attention(cell_.shape, tensors_, nullptr, cell_.step); }

  void run_to_the_end() const {
    run();
    if (place() == Place::device) device::synchronize();
  }

  /// Bytes of the card's memory taken since before the workspace was.
  int64_t memory_taken() const { return free_before_ - memory_free(); }

  /// Seconds of one run, L2 flushed before it.
  double time() const {
    if (place() == Place::device) {
      device::flush_l2(nullptr);
      return device::time_on_device(nullptr, [&] { run(); });
    }
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// The outputs; of O only `rows` are decoded, the others stay NaN.
  Outputs download(const std::vector<int64_t>& rows) const {
    const Shape& shape = cell_.shape;
    Outputs outputs;
    outputs.lse.resize(shape.q_rows());
    lse_.download(std::as_writable_bytes(std::span(outputs.lse)));
    std::vector<std::byte> bytes(o_.bytes());
    o_.download(bytes);
    outputs.o.assign(shape.q_elements(), std::numeric_limits<float>::quiet_NaN());
    const DType type = output_type(shape.dtype);
    const std::size_t row_bytes = shape.head_dim * size_of(type);
    for (int64_t row : rows)
      std::ranges::copy(decode(type, std::span(bytes).subspan(row * row_bytes, row_bytes)),
                        outputs.o.begin() + row * shape.head_dim);
    return outputs;
  }

 private:
  Place place() const { return cell_.chapter->runs_on; }
  int64_t memory_free() const { return place() == Place::device ? device::info().memory_free : 0; }

  const Cell& cell_;
  Buffer o_, lse_;
  int64_t free_before_;
  Buffer workspace_;
  Tensors tensors_;
};

bool on_gpu(const Cell& cell) {
  return cell.chapter->runs_on == Place::device && device::machine() == device::Machine::gpu;
}

/// Whether the GPU, which holds the inputs already, lacks memory for the rest: what it lacks, or nothing.
std::string missing_memory(const Cell& cell) {
  const Shape& shape = cell.shape;
  if (!on_gpu(cell)) return "";
  const double needed = double(cell.chapter->workspace_bytes(shape, cell.step)) +
                        double(shape.q_elements()) * double(size_of(output_type(shape.dtype))) +
                        double(shape.q_rows()) * sizeof(float) + kMemoryMargin;
  const double free = double(device::info().memory_free);
  if (needed <= free) return "";
  return "needs " + format_amount(needed, "B") + " of GPU memory and " + format_amount(free, "B") +
         " are free";
}

/// What is wrong with the result, or nothing.
std::string describe_failure(const CheckResult& result) {
  if (result.ok()) return "";
  const Verdict& verdict = result.o.ok ? result.lse : result.o;
  char numbers[80];
  std::snprintf(numbers, sizeof numbers, ": error %.1e, bound %.1e; ", verdict.max_error, verdict.bound);
  return (result.o.ok ? "log-sum-exp" : "O") + std::string(numbers) + verdict.worst;
}

/// The value a share of the way up the sorted values, 0.5 for the median.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * double(sorted.size() - 1);
  const auto below = std::size_t(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - double(below));
}

}  // namespace

const Meter::StoredInputs& Meter::inputs_for(const Cell& cell) {
  const Shape& shape = cell.shape;
  const Place place = cell.chapter->runs_on;
  if (inputs_ && inputs_->place == place && inputs_->shape.dtype == shape.dtype &&
      inputs_->shape.q_elements() == shape.q_elements() && inputs_->shape.k_elements() == shape.k_elements())
    return *inputs_;  // random numbers are random in any shape
  inputs_.reset();    // frees the memory before it is asked for again
  Inputs host = make_inputs(shape, InputKind::normal, kSeed);
  const EncodedInputs encoded = encode_inputs(shape, host);
  const auto upload = [&](std::span<const std::byte> bytes) {
    Buffer buffer(place, bytes.size());
    buffer.upload(bytes);
    return buffer;
  };
  const auto upload_scales = [&](const Encoded& tensor) {
    return upload(std::as_bytes(std::span(tensor.scales)));
  };
  inputs_ = StoredInputs{place,
                         shape,
                         std::move(host),
                         upload(encoded.q.bytes),
                         upload(encoded.k.bytes),
                         upload(encoded.v.bytes),
                         upload_scales(encoded.q),
                         upload_scales(encoded.k),
                         upload_scales(encoded.v)};
  return *inputs_;
}

Measurement Meter::measure(const Cell& cell) {
  Measurement result;
  try {
    if (!device_failure_.empty() && on_gpu(cell))
      result.skipped = "a kernel failed before: " + device_failure_;
    else
      measure_right(cell, result);
  } catch (const std::exception& error) {
    result.wrong = error.what();
    if (on_gpu(cell)) device_failure_ = error.what();
  }
  return result;
}

void Meter::measure_right(const Cell& cell, Measurement& result) {
  const Shape& shape = cell.shape;
  result.skipped = cell.chapter->why_not(shape, cell.step);
  if (!result.skipped.empty()) return;
  const StoredInputs& inputs = inputs_for(cell);
  result.skipped = missing_memory(cell);
  if (!result.skipped.empty()) return;

  const Reference reference = make_reference(shape, inputs.host, sample_rows(shape, kCheckedRows, kSeed));
  const Call call(cell, {.q = inputs.q.data(),
                         .k = inputs.k.data(),
                         .v = inputs.v.data(),
                         .q_scale = static_cast<const float*>(inputs.q_scale.data()),
                         .k_scale = static_cast<const float*>(inputs.k_scale.data()),
                         .v_scale = static_cast<const float*>(inputs.v_scale.data())});
  result.kernels = device::resources_of_kernels([&] { call.run_to_the_end(); });
  result.tensor_bytes = compulsory_bytes(shape);
  result.workspace_bytes = double(cell.chapter->workspace_bytes(shape, cell.step));
  if (on_gpu(cell)) result.workspace_measured = double(call.memory_taken());
  result.check = check(shape, reference, call.download(reference.rows));
  result.wrong = describe_failure(result.check);
  if (!result.wrong.empty()) return;

  std::vector<double> seconds;
  double total = 0;
  while (int(seconds.size()) < kMostRuns && !result.over_limit &&
         (int(seconds.size()) < kLeastRuns || total < max_seconds_)) {
    seconds.push_back(call.time());
    total += seconds.back();
    result.over_limit = seconds.size() == 1 && total > max_seconds_;
  }
  std::ranges::sort(seconds);
  result.runs = int(seconds.size());
  result.seconds = quantile(seconds, 0.5);
  result.spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / result.seconds;
}

}  // namespace flashbook
