#include "common/app/call.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace flashbook {
namespace {

using device::Buffer;
using device::Place;

Buffer uploaded(Place place, std::span<const std::byte> bytes) {
  Buffer buffer(place, bytes.size());
  buffer.upload(bytes);
  return buffer;
}

std::size_t bytes_spanned(const Spec& spec, TensorId id) {
  return elements_spanned(spec, id) * size_of(type_of(spec, id));
}

int64_t scales_of(const Spec& spec, TensorId id) {
  if (type_of(spec, id) != DType::e4m3) return 0;
  return id == TensorId::q ? spec.q_scales() : spec.k_scales();
}

int64_t means_of(const Spec& spec, TensorId id) {
  return spec.e4m3.mean_subtracted && (id == TensorId::k || id == TensorId::v) ? spec.k_columns() : 0;
}

std::vector<std::byte> bytes_of(const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  buffer.download(bytes);
  return bytes;
}

/// Returns whether a tensor has a row, or a single number, per query.
bool has_rows_of_queries(TensorId id) {
  return id == TensorId::o || id == TensorId::lse || id == TensorId::dq;
}

/// Returns a tensor's values in the default layout; rows other than the given ones are NaN.
std::vector<float> decode_rows(const Spec& spec, TensorId id, std::span<const std::byte> bytes,
                               const std::vector<int64_t>& rows) {
  const DType type = type_of(spec, id);
  const Strides strides = spec.strides(id);
  const int64_t width = columns_of(spec, id);
  std::vector<float> values(elements_of(spec, id), std::numeric_limits<float>::quiet_NaN());
  for (const int64_t row : rows) {
    const int64_t head = row / spec.seqlen_q;
    const int64_t first = head / spec.heads * strides.batch + head % spec.heads * strides.head +
                          row % spec.seqlen_q * strides.row;
    const auto encoded = bytes.subspan(first * size_of(type), width * size_of(type));
    std::ranges::copy(decode(type, encoded), values.begin() + row * width);
  }
  return values;
}

}  // namespace

UploadedInputs::UploadedInputs(Operation operation, const Spec& spec, const Inputs& inputs, Place place)
    : place_(place) {
  for (const TensorSpec& tensor : tensors_of(operation)) {
    if (tensor.role != Role::input) continue;
    const Encoded encoded = encode_input(spec, tensor.id, inputs[tensor.id], inputs.means(tensor.id));
    add({tensor.id, uploaded(place, encoded.bytes), uploaded(place, std::as_bytes(std::span(encoded.scales))),
         uploaded(place, std::as_bytes(inputs.means(tensor.id)))});
  }
  if (operation == Operation::backward && !inputs.d_lse.empty()) {
    d_lse_ = uploaded(place, std::as_bytes(std::span(inputs.d_lse)));
    tensors_.d_lse = static_cast<const float*>(d_lse_.data());
  }
  upload_tables(spec);
}

UploadedInputs::UploadedInputs(Operation operation, const Spec& spec, Place place) : place_(place) {
  for (const TensorSpec& tensor : tensors_of(operation))
    if (tensor.role == Role::input)
      add({tensor.id, Buffer(place, bytes_spanned(spec, tensor.id)),
           Buffer(place, scales_of(spec, tensor.id) * sizeof(float)),
           Buffer(place, means_of(spec, tensor.id) * sizeof(float))});
  upload_tables(spec);
}

const UploadedInputs::Input& UploadedInputs::find(TensorId id) const {
  const auto found = std::ranges::find(inputs_, id, &Input::id);
  if (found == inputs_.end()) throw std::logic_error(std::string(name_of(id)) + " is not an input");
  return *found;
}

void UploadedInputs::add(Input input) {
  tensors_.set(input.id, input.values.data());
  const auto* scales = static_cast<const float*>(input.scales.data());
  if (input.id == TensorId::q) tensors_.q_scale = scales;
  if (input.id == TensorId::k) tensors_.k_scale = scales;
  if (input.id == TensorId::v) tensors_.v_scale = scales;
  const auto* means = static_cast<const float*>(input.means.data());
  if (input.id == TensorId::k) tensors_.k_mean = means;
  if (input.id == TensorId::v) tensors_.v_mean = means;
  inputs_.push_back(std::move(input));
}

void UploadedInputs::upload_tables(const Spec& spec) {
  for (const FeatureTable& table : tables_of(spec)) {
    tables_.push_back(uploaded(place_, table.bytes));
    tensors_.tables[int(table.id)] = tables_.back().data();
  }
}

Call::Call(const Chapter& chapter, const Spec& spec, const UploadedInputs& inputs, int step,
           const device::Together& together)
    : Call(chapter.step(step).operation, spec, inputs, chapter.step(step).workspace_bytes(spec),
           [run = chapter.step(step).run, spec](const Tensors& tensors) { run(spec, tensors, nullptr); }) {
  if (chapter.step(step).deal_out != nullptr)
    dealt_out_ = chapter.step(step).deal_out(spec, tensors_, together);
  if (chapter.step(step).zeroed == nullptr || workspace_.bytes() == 0) return;
  std::vector<std::byte> fresh(workspace_.bytes(), std::byte(kPoison));
  zeroed_ = chapter.step(step).zeroed_bytes(spec);
  std::fill_n(fresh.begin(), zeroed_, std::byte(0));
  workspace_.upload(fresh);
}

Call::Call(Operation operation, const Spec& spec, const UploadedInputs& inputs, int64_t workspace_bytes,
           Launch launch)
    : spec_(spec), place_(inputs.place()), launch_(std::move(launch)), tensors_(inputs.tensors()) {
  for (const TensorSpec& tensor : tensors_of(operation)) {
    if (tensor.role != Role::output) continue;
    outputs_.push_back({tensor.id, Buffer(place_, bytes_spanned(spec, tensor.id))});
    tensors_.set(tensor.id, outputs_.back().buffer.data());
  }
  free_before_workspace_ = memory_free();
  workspace_ = Buffer(place_, workspace_bytes);
  tensors_.workspace = workspace_.data();
}

void Call::poison() {
  for (Output& output : outputs_) output.buffer.poison();
}

void Call::run() const {
  if (dealt_out_) {
    dealt_out_->run();
    return dealt_out_->collect();
  }
  launch_(tensors_);
  if (place_ == Place::device) device::synchronize();
}

double Call::time() const {
  if (dealt_out_) return dealt_out_->time(1).front();
  const auto work = [&] { launch_(tensors_); };
  if (place_ == Place::device) {
    device::flush_l2(nullptr);
    return device::time_on_device(nullptr, work);
  }
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Outputs Call::download() const {
  Outputs outputs;
  for (const Output& output : outputs_)
    outputs[output.id] = decode_output(spec_, output.id, bytes_of(output.buffer));
  return outputs;
}

Outputs Call::download(const std::vector<int64_t>& rows) const {
  Outputs outputs;
  for (const Output& output : outputs_) {
    const std::vector<std::byte> bytes = bytes_of(output.buffer);
    outputs[output.id] = has_rows_of_queries(output.id) ? decode_rows(spec_, output.id, bytes, rows)
                                                        : decode_output(spec_, output.id, bytes);
  }
  return outputs;
}

std::vector<std::byte> Call::download_bytes() const {
  std::vector<std::byte> all;
  for (const Output& output : outputs_) {
    const std::size_t first = all.size();
    all.resize(first + output.buffer.bytes());
    output.buffer.download(std::span(all).subspan(first));
  }
  return all;
}

int64_t Call::workspace_taken() const { return free_before_workspace_ - memory_free(); }

int64_t Call::memory_free() const { return place_ == Place::device ? device::info().memory_free : 0; }

bool Call::has_zeros() const {
  if (zeroed_ == 0) return true;
  std::vector<std::byte> all(workspace_.bytes());
  workspace_.download(all);
  return std::all_of(all.begin(), all.begin() + zeroed_, [](std::byte byte) { return byte == std::byte(0); });
}

Outputs run_once(const Chapter& chapter, const Spec& spec, const Inputs& inputs, int step) {
  const UploadedInputs uploaded(chapter.step(step).operation, spec, inputs, chapter.runs_on);
  const Call call(chapter, spec, uploaded, step);
  call.run();
  return call.download();
}

double median(std::vector<double> seconds) {
  std::ranges::nth_element(seconds, seconds.begin() + std::ptrdiff_t(seconds.size() / 2));
  return seconds[seconds.size() / 2];
}

}  // namespace flashbook
