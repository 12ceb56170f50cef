/// \file
/// A capstone's plan, run, judged and counted.
#pragma once
#include "chapters/capstones/contract.h"
#include "common/attention/cost.h"
#include "tests/exercises/attention_kernel.h"
#include "tests/support/work.h"

namespace flashbook::testing {

/// A batch of heads in f16, with head_dim 64.
inline Shape capstone_shape(int batch, int heads, int kv_heads, int seqlen_q, int seqlen_k, bool causal) {
  Shape shape = attention_shape(heads, kv_heads, seqlen_q, seqlen_k, causal);
  shape.batch = batch;
  return shape;
}

/// Has `make_plan(plan)` plan, uploads inputs only then, and runs the launches. What the machine complains
/// about becomes the test's failure. False if there is nothing to judge.
template <typename MakePlan, typename Upload>
bool run_plan(MakePlan make_plan, Upload upload, double multiply_adds, std::optional<Work>& work) {
  std::string complaint;
  if (!is_judging()) {
    try {
      capstone::Plan plan;
      make_plan(plan);
      upload();  // a plan is made of shapes: what it could compute of values here would be no kernel's work
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

/// Writes the count of a test down for course/score.py, if there is one. `least`: clocks that no kernel takes
/// less than; who says so has not counted.
inline void record(const std::optional<Work>& counted, double least) {
  const bool is_counted = observed(counted.has_value());
  if (!is_counted) return;
  const Work work = observed(counted.value_or(Work{}));
  if (!(work.clocks() >= least && work.clocks() < 1e15)) {
    ADD_FAILURE() << "the count is one that no kernel can have";
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

/// Every input and output once, and every product on a tensor core.
inline double least_clocks(const Shape& shape, Operation operation) {
  return compulsory_bytes(shape, operation) / 32 + flops(shape, operation) / 2 / 2048;
}

}  // namespace flashbook::testing
