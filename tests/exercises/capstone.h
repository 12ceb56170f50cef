/// \file
/// A capstone's plan, run, judged and counted.
#pragma once
#include "chapters/capstones/contract.h"
#include "common/attention/cost.h"
#include "tests/exercises/attention_kernel.h"
#include "tests/support/work.h"

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
bool run_plan(MakePlan make_plan, Upload upload, double multiply_adds, std::optional<Work>& work) {
  std::string complaint;
  if (!is_judging()) {
    try {
      capstone::Plan plan;
      make_plan(plan);
      upload();  // after planning, so that the plan cannot compute anything from the values outside a kernel
      if (plan.launches().empty()) complaint = "plan() launches nothing";
      work = work_of(plan.launches(), multiply_adds, device::multiprocessors());
      device::synchronize();
    } catch (const device::DeviceError& error) {
      complaint = error.what();
    }
  }
  complaint = observed(complaint);
  if (!complaint.empty()) ADD_FAILURE() << complaint;
  return complaint.empty();
}

/// Records the clock count of a test, if there is one, for course/score.py. A count below `least`, a lower
/// bound for any kernel, fails the test.
inline void record(const std::optional<Work>& counted, double least) {
  const bool is_counted = observed(counted.has_value());
  if (!is_counted) return;
  const Work work = observed(counted.value_or(Work{}));
  if (!(work.clocks() >= least && work.clocks() < 1e15)) {
    ADD_FAILURE() << "no kernel can have a count as low as this";
    return;
  }
  const auto whole = [](double clocks) { return int64_t(std::llround(clocks)); };
  ::testing::Test::RecordProperty("clocks", whole(work.clocks()));
  ::testing::Test::RecordProperty("sectors", whole(work.sectors));
  ::testing::Test::RecordProperty("wavefronts", whole(work.wavefronts));
  ::testing::Test::RecordProperty("exponentials", whole(work.exponentials));
  ::testing::Test::RecordProperty("tensor_cores", whole(work.tensor_cores));
  ::testing::Test::RecordProperty("cuda_cores", whole(work.cuda_cores));
  ::testing::Test::RecordProperty("idle", whole(work.idle));
}

/// Reads every input and writes every output once, with every product on a tensor core.
inline double least_clocks(const Spec& spec, Operation operation) {
  return compulsory_bytes(spec, operation) / 32 + flops(spec, operation) / 2 / 2048;
}

}  // namespace flashbook::testing
