#include "tests/mutation/trial.h"

#include <span>

#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "common/device/device.h"

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

std::string try_once(Attention attention, const Shape& shape) {
  const Inputs inputs = make_inputs(shape, InputKind::normal, kInputSeed);
  const device::Buffer q = uploaded(shape.dtype, inputs.q), k = uploaded(shape.dtype, inputs.k),
                       v = uploaded(shape.dtype, inputs.v);
  const device::Buffer o(device::Place::device,
                         std::size_t(shape.q_elements()) * size_of(output_type(shape.dtype)));
  const device::Buffer lse(device::Place::device, std::size_t(shape.q_rows()) * sizeof(float));
  Outputs outputs;
  try {
    attention(shape, {q.data(), k.data(), v.data(), o.data(), static_cast<float*>(lse.data())});
    std::vector<std::byte> encoded(o.bytes());
    o.download(encoded);
    outputs.o = decode(output_type(shape.dtype), encoded);
    outputs.lse.resize(std::size_t(shape.q_rows()));
    lse.download(std::as_writable_bytes(std::span(outputs.lse)));
  } catch (const device::DeviceError& error) {
    return without_launch(error.what());
  }
  const CheckResult result = check(shape, make_reference(shape, inputs, all_rows(shape)), outputs);
  if (!result.o.ok) return "wrong result: O, " + result.o.worst;
  if (!result.lse.ok) return "wrong result: log-sum-exp, " + result.lse.worst;
  return "";
}

}  // namespace flashbook::mutation
