#include "common/app/expected.h"

#include <algorithm>
#include <utility>

#include "common/app/call.h"
#include "common/attention/cost.h"

namespace flashbook {

namespace {

constexpr double kOracleFlops = 1.5e10;  // for a full forward pass of the oracle, which then takes seconds

/// Returns the last step of a chapter's forward pass that can run a shape; 0 if there is none.
int step_for(const Chapter* chapter, const Shape& shape) {
  if (chapter == nullptr || !chapter->takes(shape.dtype)) return 0;
  std::vector<int> steps = chapter->steps_of(Operation::forward);
  while (!steps.empty() && !chapter->refusal(steps.back(), shape).empty()) steps.pop_back();
  return steps.empty() ? 0 : steps.back();
}

}  // namespace

bool complete_inputs(Operation operation, const Shape& shape, uint64_t seed, Inputs& inputs,
                     const Chapter* forward) {
  if (operation != Operation::backward) return false;
  if (inputs.d_o.empty()) {
    // dO has the shape of Q; K and V with a single key cost nothing.
    Shape like = shape;
    like.kv_heads = 1, like.seqlen_k = 1, like.layout = {}, like.visibility = {}, like.score = {};
    inputs.d_o = make_inputs(like, InputKind::normal, seed + 1).q;
  }
  if (!inputs.o.empty()) return false;
  if (const int step = step_for(forward, shape); flops(shape) > kOracleFlops && step > 0) {
    Outputs outputs = run_once(*forward, shape, inputs, step);
    inputs.o = std::move(outputs.o);
    inputs.lse = std::move(outputs.lse);
    return true;
  }
  const Reference reference = make_reference(shape, inputs, all_rows(shape));
  inputs.o.assign(reference.o.begin(), reference.o.end());
  round_to(type_of(shape, TensorId::o), inputs.o);
  inputs.lse.assign(reference.lse.begin(), reference.lse.end());
  return false;
}

Inputs make_inputs(Operation operation, const Shape& shape, InputKind kind, uint64_t seed,
                   const Chapter* forward) {
  Inputs inputs = make_inputs(shape, kind, seed);
  complete_inputs(operation, shape, seed, inputs, forward);
  return inputs;
}

Expected::Expected(Operation operation, const Shape& shape, const Inputs& inputs, std::vector<int64_t> rows,
                   const Progress& progress)
    : shape_(shape) {
  if (operation == Operation::backward) {
    constexpr uint64_t kSeed = 1;
    std::vector<int64_t> keys = int64_t(rows.size()) == shape.q_rows()
                                    ? all_key_rows(shape)
                                    : sample_key_rows(shape, int64_t(rows.size()), kSeed);
    gradients_ = make_gradient_reference(shape, inputs, std::move(rows), std::move(keys), progress);
  } else {
    forward_ = make_reference(shape, inputs, std::move(rows), progress);
  }
}

std::vector<TensorVerdict> Expected::judge(const Outputs& outputs) const {
  if (gradients_.empty()) return by_tensor(check(shape_, forward_, outputs));
  std::vector<TensorVerdict> verdicts;
  for (const TensorReference& gradient : gradients_)
    verdicts.push_back({gradient.id, check(shape_, gradient, outputs[gradient.id])});
  return verdicts;
}

}  // namespace flashbook
