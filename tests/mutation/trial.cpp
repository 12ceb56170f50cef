#include "tests/mutation/trial.h"

#include <span>

#include "common/attention/check.h"

namespace flashbook::mutation {
namespace {

constexpr uint64_t kInputSeed = 1;

device::Buffer uploaded(DType type, const std::vector<float>& values) {
  const std::vector<std::byte> encoded = encode(type, values);
  device::Buffer buffer(device::Place::device, encoded.size());
  buffer.upload(encoded);
  return buffer;
}

std::string without_launch(std::string_view report) {
  constexpr std::string_view kEndOfLaunch = ">>>: ";  // of device::describe_launch
  const std::size_t end = report.find(kEndOfLaunch);
  return std::string(end == report.npos ? report : report.substr(end + kEndOfLaunch.size()));
}

}  // namespace

Problem::Problem(const Shape& shape)
    : shape_(shape),
      inputs_(make_inputs(shape, InputKind::normal, kInputSeed)),
      q_(uploaded(shape.dtype, inputs_.q)),
      k_(uploaded(shape.dtype, inputs_.k)),
      v_(uploaded(shape.dtype, inputs_.v)),
      o_(device::Place::device, std::size_t(shape.q_elements()) * size_of(output_type(shape.dtype))),
      lse_(device::Place::device, std::size_t(shape.q_rows()) * sizeof(float)) {}

void Problem::solve(Attention attention) const {
  attention(shape_, {q_.data(), k_.data(), v_.data(), o_.data(), static_cast<float*>(lse_.data())});
  device::synchronize();
}

std::string Problem::verdict() const {
  std::vector<std::byte> encoded(o_.bytes());
  o_.download(encoded);
  Outputs outputs{decode(output_type(shape_.dtype), encoded),
                  std::vector<float>(std::size_t(shape_.q_rows()))};
  lse_.download(std::as_writable_bytes(std::span(outputs.lse)));
  const CheckResult result = check(shape_, make_reference(shape_, inputs_, all_rows(shape_)), outputs);
  if (!result.o.ok) return "wrong result: O, " + result.o.worst;
  if (!result.lse.ok) return "wrong result: log-sum-exp, " + result.lse.worst;
  return "";
}

std::string try_once(Attention attention, const Shape& shape) {
  const Problem problem(shape);
  try {
    problem.solve(attention);
  } catch (const device::DeviceError& error) {
    return without_launch(error.what());
  }
  return problem.verdict();
}

}  // namespace flashbook::mutation
