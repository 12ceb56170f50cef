#include "common/app/expected.h"

#include <utility>

#include "common/app/call.h"
#include "common/attention/cost.h"

namespace flashbook {

namespace {

constexpr double kOracleFlops = 1.5e10;  // for a full forward pass of the oracle, which then takes seconds

/// Returns the last step of a chapter's forward pass that can run a problem; 0 if there is none.
int step_for(const Chapter* chapter, const Spec& spec) {
  if (chapter == nullptr || !chapter->takes(spec.dtype)) return 0;
  std::vector<int> steps = chapter->steps_of(Operation::forward);
  while (!steps.empty() && !chapter->refusal(steps.back(), spec).empty()) steps.pop_back();
  return steps.empty() ? 0 : steps.back();
}

}  // namespace

bool complete_inputs(Operation operation, const Spec& spec, uint64_t seed, Inputs& inputs,
                     const Chapter* forward) {
  if (operation != Operation::backward) return false;
  if (inputs.d_o.empty()) {
    // dO is drawn like a Q of its width; K and V with a single key cost nothing.
    Spec like = spec;
    like.set_head_dim(spec.value_dim);
    like.kv_heads = 1, like.seqlen_k = 1, like.layout = {}, like.visibility = {}, like.score = {};
    inputs.d_o = make_inputs(like, InputKind::normal, seed + 1).q;
  }
  if (!inputs.o.empty()) return false;
  if (const int step = step_for(forward, spec); flops(spec) > kOracleFlops && step > 0) {
    Outputs outputs = run_once(*forward, spec, inputs, step);
    inputs.o = std::move(outputs.o);
    inputs.lse = std::move(outputs.lse);
    return true;
  }
  const Reference reference = make_reference(spec, inputs, all_rows(spec));
  inputs.o.assign(reference.o.begin(), reference.o.end());
  round_to(type_of(spec, TensorId::o), inputs.o);
  inputs.lse.assign(reference.lse.begin(), reference.lse.end());
  return false;
}

Inputs make_inputs(Operation operation, const Spec& spec, InputKind kind, uint64_t seed,
                   const Chapter* forward) {
  Inputs inputs = make_inputs(spec, kind, seed);
  complete_inputs(operation, spec, seed, inputs, forward);
  return inputs;
}

Expected::Expected(Operation operation, const Spec& spec, const Inputs& inputs, std::vector<int64_t> rows,
                   const Progress& progress)
    : spec_(spec) {
  if (operation == Operation::backward) {
    constexpr uint64_t kSeed = 1;
    std::vector<int64_t> keys = int64_t(rows.size()) == spec.q_rows()
                                    ? all_key_rows(spec)
                                    : sample_key_rows(spec, int64_t(rows.size()), kSeed);
    gradients_ = make_gradient_reference(spec, inputs, std::move(rows), std::move(keys), progress);
  } else {
    forward_ = make_reference(spec, inputs, std::move(rows), progress);
  }
}

std::vector<TensorVerdict> Expected::judge(const Outputs& outputs) const {
  if (gradients_.empty()) return by_tensor(check(spec_, forward_, outputs));
  std::vector<TensorVerdict> verdicts;
  for (const TensorReference& gradient : gradients_)
    verdicts.push_back({gradient.id, check(spec_, gradient, outputs[gradient.id])});
  return verdicts;
}

}  // namespace flashbook
