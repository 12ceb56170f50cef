/// \file
/// Compares a kernel that computes attention with FP64.
#pragma once
#include "common/attention/check.h"
#include "common/attention/inputs.h"
#include "tests/exercises/exercise.h"
#include "tests/support/specs.h"

namespace flashbook::testing {

/// Returns a problem with one batch entry in f16, with head_dim 64.
inline Spec attention_spec(int heads, int kv_heads, int seqlen_q, int seqlen_k, bool causal) {
  return make_spec(seqlen_q, seqlen_k, 64, causal, DType::f16, heads, kv_heads);
}

/// Returns normally distributed inputs, which depend on course_seed().
inline Inputs normal_inputs(const Spec& spec) {
  return make_inputs(spec, InputKind::normal, 6 + course_seed());
}

/// Returns possible causes of a NaN in a comparison's text; empty if it mentions none.
inline std::string why_nan(const Spec& spec, const std::string& worst) {
  if (worst.find("nan") == std::string::npos) return "";
  const bool some_see_none = spec.causal() && spec.seqlen_q > spec.seqlen_k;
  return std::string(". NaN was never written, or is inf - inf or 0 / 0") +
         (some_see_none ? "; a row that sees no key has O = 0 and a log-sum-exp of -inf" : "");
}

/// Compares every element of O and of the log-sum-exp with attention in double.
inline void expect_outputs(const Spec& spec, const Reference& reference, const Outputs& outputs) {
  const CheckResult result = check(spec, reference, outputs);
  if (!result.o.ok)
    ADD_FAILURE() << "O of " << describe(spec) << ". The worst element: " << result.o.worst
                  << why_nan(spec, result.o.worst);
  if (!result.lse.ok)
    ADD_FAILURE() << "The log-sum-exp of " << describe(spec) << ". The worst row: " << result.lse.worst
                  << why_nan(spec, result.lse.worst);
}

/// Compares outputs with attention in double, under the mask that the problem describes.
inline void expect_outputs(const Spec& spec, const Inputs& inputs, const Outputs& outputs) {
  expect_outputs(spec, make_reference(spec, inputs, all_rows(spec)), outputs);
}

/// Calls `launch(q, k, v, o, lse)`, which launches a kernel, with inputs of `spec`, and compares every
/// element of O and of the log-sum-exp with attention in double.
template <typename Launch>
void expect_attention(const Spec& spec, const Inputs& inputs, Launch launch) {
  const DeviceArray q(spec.dtype, inputs.q), k(spec.dtype, inputs.k), v(spec.dtype, inputs.v);
  const DeviceArray o(spec.dtype, std::size_t(spec.q_elements())),
      lse(DType::f32, std::size_t(spec.q_rows()));
  launch(q.as<__half>(), k.as<__half>(), v.as<__half>(), o.as<__half>(), lse.as<float>());
  expect_outputs(spec, inputs, {o.download(), lse.download()});
}

/// Calls `launch` with normal_inputs(), and compares its outputs with attention in double.
template <typename Launch>
void expect_attention(const Spec& spec, Launch launch) {
  expect_attention(spec, normal_inputs(spec), launch);
}

}  // namespace flashbook::testing
