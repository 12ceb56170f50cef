#include "tests/mutation/trial.h"

#include "common/attention/check.h"
#include "common/attention/inputs.h"

namespace flashbook::mutation {
namespace {

constexpr uint64_t kInputSeed = 1;

std::string without_launch(std::string_view report) {
  constexpr std::string_view kEndOfLaunch = ">>>: ";  // of device::describe_launch
  const std::size_t end = report.find(kEndOfLaunch);
  return std::string(end == report.npos ? report : report.substr(end + kEndOfLaunch.size()));
}

}  // namespace

Trial::Trial(Attention attention, const Shape& shape)
    : shape_(shape),
      inputs_(make_inputs(shape, InputKind::normal, kInputSeed)),
      uploaded_(Operation::forward, shape, inputs_, device::Place::device),
      call_(Operation::forward, shape, uploaded_, 0,
            [attention, shape](const Tensors& tensors) { attention(shape, tensors); }) {}

std::string Trial::verdict() const {
  const Outputs outputs = call_.download();
  const CheckResult result = check(shape_, make_reference(shape_, inputs_, all_rows(shape_)), outputs);
  if (!result.o.ok) return "wrong result: O, " + result.o.worst;
  if (!result.lse.ok) return "wrong result: log-sum-exp, " + result.lse.worst;
  return "";
}

std::string try_once(Attention attention, const Shape& shape) {
  const Trial trial(attention, shape);
  try {
    trial.run();
  } catch (const device::DeviceError& error) {
    return without_launch(error.what());
  }
  return trial.verdict();
}

}  // namespace flashbook::mutation
