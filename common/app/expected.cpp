#include "common/app/expected.h"

#include <utility>

namespace flashbook {

Inputs make_inputs(Operation operation, const Shape& shape, InputKind kind, uint64_t seed) {
  Inputs inputs = make_inputs(shape, kind, seed);
  if (operation != Operation::backward) return inputs;
  const Reference forward = make_reference(shape, inputs, all_rows(shape));
  inputs.o.assign(forward.o.begin(), forward.o.end());
  round_to(type_of(shape, TensorId::o), inputs.o);
  inputs.lse.assign(forward.lse.begin(), forward.lse.end());
  inputs.d_o = make_inputs(shape, InputKind::normal, seed + 1).q;
  return inputs;
}

Expected::Expected(Operation operation, const Shape& shape, const Inputs& inputs, std::vector<int64_t> rows,
                   const Progress& progress)
    : shape_(shape) {
  if (operation == Operation::backward)
    gradients_ = make_gradient_reference(shape, inputs, progress);
  else
    forward_ = make_reference(shape, inputs, std::move(rows), progress);
}

std::vector<TensorVerdict> Expected::judge(const Outputs& outputs) const {
  if (gradients_.empty()) return by_tensor(check(shape_, forward_, outputs));
  std::vector<TensorVerdict> verdicts;
  for (const TensorReference& gradient : gradients_)
    verdicts.push_back({gradient.id, check(shape_, gradient, outputs[gradient.id])});
  return verdicts;
}

}  // namespace flashbook
