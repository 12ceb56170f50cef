/// \file
/// A capstone's plan, run and judged.
#pragma once
#include "chapters/capstones/contract.h"
#include "tests/exercises/attention_kernel.h"

namespace flashbook::testing {

/// Returns a problem in f16, with head_dim 64.
inline Spec capstone_spec(int batch, int heads, int kv_heads, int seqlen_q, int seqlen_k, bool causal) {
  Spec spec = attention_spec(heads, kv_heads, seqlen_q, seqlen_k, causal);
  spec.batch = batch;
  return spec;
}

/// Calls `make_plan(plan)`, then uploads the inputs and runs the launches. A fault that the machine reports
/// fails the test. Returns false if there is nothing to judge.
template <typename MakePlan, typename Upload>
bool run_plan(MakePlan make_plan, Upload upload) {
  std::string complaint;
  if (!is_judging()) {
    try {
      capstone::Plan plan;
      make_plan(plan);
      upload();  // after planning, so that the plan cannot compute anything from the values outside a kernel
      if (plan.launches().empty()) complaint = "plan() launches nothing";
      for (const auto& launch : plan.launches()) launch();
      device::synchronize();
    } catch (const device::DeviceError& error) {
      complaint = error.what();
    }
  }
  complaint = observed(complaint);
  if (!complaint.empty()) ADD_FAILURE() << complaint;
  return complaint.empty();
}

}  // namespace flashbook::testing
