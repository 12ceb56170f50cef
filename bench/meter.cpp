#include "bench/meter.h"

#include <algorithm>
#include <cmath>

#include "common/app/expected.h"
#include "common/attention/cost.h"
#include "common/attention/inputs.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

using device::Place;

constexpr int kCheckedRows =
    32;  // the tests check every row; here wrong kernels must only be caught before they are timed
constexpr int kMinRuns = 3, kMaxRuns = 300;
constexpr double kMemoryMargin = 512e6;  // reserved for the buffer that flushes the L2, and for the driver
constexpr uint64_t kSeed = 1;

bool on_gpu(const Cell& cell) {
  return cell.chapter->runs_on == Place::device && device::machine() == device::Machine::gpu;
}

/// Describes the lack of GPU memory for everything except the inputs; empty if there is enough.
std::string missing_memory(const Cell& cell) {
  const Spec& spec = cell.spec;
  if (!on_gpu(cell)) return "";
  double needed = double(cell.row().workspace_bytes(spec)) + kMemoryMargin;
  for (const TensorSpec& tensor : tensors_of(cell.row().operation))
    if (tensor.role == Role::output)
      needed += double(elements_spanned(spec, tensor.id)) * double(size_of(type_of(spec, tensor.id)));
  const double free = double(device::info().memory_free);
  if (needed <= free) return "";
  return "needs " + format_amount(needed, "B") + " of GPU memory and " + format_amount(free, "B") +
         " are free";
}

/// Returns whether inputs of one shape can be reused for the other: random numbers fit any shape that is
/// contiguous and has no tables.
bool can_share(Operation operation, const Spec& a, const Spec& b) {
  if (operation == Operation::backward) return a == b;  // since O depends on the shape
  const auto is_plain = [](const Spec& spec) {
    return spec.is_default_layout() && spec.e4m3.scaling == Scaling::tensor && tables_of(spec).empty();
  };
  return is_plain(a) && is_plain(b) && a.dtype == b.dtype && a.q_elements() == b.q_elements() &&
         a.k_elements() == b.k_elements();
}

/// Returns the last chapter with a forward pass that supports a shape, to compute O and the log-sum-exp for a
/// gradient. Null if there is none.
const Chapter* forward_for(const Spec& spec) {
  const Chapter* last = nullptr;
  for (const Chapter* chapter : all_chapters()) {
    const std::vector<int> steps = chapter->steps_of(Operation::forward);
    if (!steps.empty() && chapter->takes(spec.dtype) && chapter->refusal(steps.back(), spec).empty())
      last = chapter;
  }
  return last;
}

/// Returns the quantile `share` of the sorted values, 0.5 for the median.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * double(sorted.size() - 1);
  const auto below = std::size_t(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - double(below));
}

}  // namespace

const Meter::StoredInputs& Meter::inputs_for(const Cell& cell) {
  const Spec& spec = cell.spec;
  if (inputs_ && inputs_->operation == cell.row().operation &&
      inputs_->uploaded.place() == cell.chapter->runs_on &&
      can_share(cell.row().operation, inputs_->spec, spec))
    return *inputs_;
  inputs_.reset();  // frees the memory before allocating it again
  Inputs host = make_inputs(cell.row().operation, spec, InputKind::normal, kSeed, forward_for(spec));
  UploadedInputs uploaded(cell.row().operation, spec, host, cell.chapter->runs_on);
  inputs_ = {cell.row().operation, spec, std::move(host), std::move(uploaded)};
  return *inputs_;
}

Measurement Meter::measure(const Cell& cell) {
  Measurement result;
  try {
    if (!device_failure_.empty() && on_gpu(cell))
      result.skipped = "a kernel failed before: " + device_failure_;
    else
      measure_right(cell, result);
  } catch (const device::UsageError& error) {
    result.skipped = error.what();
  } catch (const std::exception& error) {
    result.wrong = error.what();
    if (on_gpu(cell)) device_failure_ = error.what();
  }
  return result;
}

void Meter::measure_right(const Cell& cell, Measurement& result) {
  const Spec& spec = cell.spec;
  result.skipped = cell.chapter->refusal(cell.step, spec);
  if (!result.skipped.empty()) return;
  const StoredInputs& inputs = inputs_for(cell);
  result.skipped = missing_memory(cell);
  if (!result.skipped.empty()) return;

  const std::vector<int64_t> rows = sample_rows(spec, kCheckedRows, kSeed);
  const Expected expected(cell.row().operation, spec, inputs.host, rows);
  const Call call(*cell.chapter, spec, inputs.uploaded, cell.step);
  result.kernels = device::resources_of_kernels([&] { call.run(); });
  result.tensor_bytes = compulsory_bytes(spec, cell.row().operation);
  result.workspace_bytes = double(cell.row().workspace_bytes(spec));
  if (on_gpu(cell)) result.workspace_measured = double(call.workspace_taken());
  result.verdicts = expected.judge(call.download(rows));
  result.wrong = describe_failure(result.verdicts, "the oracle");
  if (!result.wrong.empty()) return;

  std::vector<double> seconds;
  double total = 0;
  while (int(seconds.size()) < kMaxRuns && !result.over_limit &&
         (int(seconds.size()) < kMinRuns || total < max_seconds_)) {
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
