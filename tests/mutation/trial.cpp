#include "tests/mutation/trial.h"

#include "common/app/expected.h"
#include "common/app/report.h"

namespace flashbook::mutation {
namespace {

constexpr uint64_t kInputSeed = 1;

std::string without_launch(std::string_view report) {
  constexpr std::string_view kLaunchEnd = ">>>: ";  // how device::describe_launch ends
  const std::size_t end = report.find(kLaunchEnd);
  return std::string(end == report.npos ? report : report.substr(end + kLaunchEnd.size()));
}

}  // namespace

Trial::Trial(const Kernel& kernel, Attention attention, const Spec& spec)
    : operation_(kernel.operation),
      spec_(spec),
      inputs_(make_inputs(operation_, spec, InputKind::normal, kInputSeed)),
      uploaded_(operation_, spec, inputs_, device::Place::device),
      workspace_(device::Place::device, kernel.workspace_bytes ? kernel.workspace_bytes(spec) : 0),
      call_(operation_, spec, uploaded_, 0, [this, attention](Tensors tensors) {
        tensors.workspace = workspace_.data();
        attention(spec_, tensors);
      }) {}

std::vector<std::byte> Trial::workspace() const {
  std::vector<std::byte> bytes(workspace_.bytes());
  workspace_.download(bytes);
  return bytes;
}

std::string Trial::verdict() const {
  const Expected expected(operation_, spec_, inputs_, all_rows(spec_));
  for (const auto& [tensor, verdict] : expected.judge(call_.download()))
    if (!verdict.ok) return "wrong result: " + std::string(title_of(tensor)) + ", " + verdict.worst;
  return "";
}

std::string try_once(const Kernel& kernel, Attention attention, const Spec& spec) {
  const Trial trial(kernel, attention, spec);
  try {
    trial.run();
  } catch (const device::DeviceError& error) {
    return without_launch(error.what());
  }
  return trial.verdict();
}

}  // namespace flashbook::mutation
