/// \file
/// Requirements for every chapter: the tests of conformance.cpp, which is compiled once. A chapter's test
/// file includes this, defines which chapter is under test, and adds tests of its own.
#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/runner.h"
#include "common/attention/error.h"
#include "common/attention/inputs.h"
#include "tests/require_gpu.h"
#include "tests/support/cases.h"
#include "tests/support/machine.h"

namespace flashbook::testing {

/// The chapter under test and the previous one, or null. Defined by the chapter's test file.
extern const Chapter& chapter_under_test;
extern const Chapter* const chapter_before;
/// The operation under test, and the steps that compute it.
extern const Operation operation_under_test;
inline std::vector<int> steps_under_test() { return chapter_under_test.steps_of(operation_under_test); }
/// Names a test after the step.
inline std::string slug_of(const ::testing::TestParamInfo<int>& step) {
  return chapter_under_test.step(step.param).slug;
}
inline int last_step() { return steps_under_test().back(); }

/// A step by its slug, as a constant that converts to its number.
struct Slug {
  const Chapter& chapter;
  const char* slug;
  operator int() const { return chapter.place(slug); }
};

/// If this chapter's kernels or the previous one's need a GPU and there is none, tests are skipped, or fail
/// if a GPU is required.
class ChapterTest : public MachineTest {
 protected:
  void SetUp() override {
    const bool needs_device = chapter_under_test.runs_on == device::Place::device ||
                              (chapter_before != nullptr && chapter_before->runs_on == device::Place::device);
    if (needs_device) MachineTest::SetUp();
  }
};

/// Runs every step starting with `first_step` on `inputs`, and compares it with the oracle.
void expect_right(const Spec& spec, const Inputs& inputs, int first_step = 1);

/// Returns inputs for the chapter's operation.
Inputs inputs_of(const Spec& spec, InputKind kind, uint64_t seed);

/// Adds a gradient of the log-sum-exp to a backward pass: numbers from -2 to 2, NaN for queries that see no
/// key.
void add_lse_gradient(const Spec& spec, Inputs& inputs);

/// Checks that a step gives the same bits in this many launches.
void expect_same_bits(const Spec& spec, const Inputs& inputs, int step, int launches);

/// Checks that a step, by default the last one, gives the same bits in every launch, although blocks take
/// tiles from a counter, warpgroups take turns and copies complete at any time. On a GPU: 10,000 launches,
/// 1000 of a gradient, with more tiles than multiprocessors.
void expect_same_bits(DType dtype, int step = last_step(), int launches_on_gpu = 1667);

/// Checks dQ and dK of every step starting with `first_step`, where each query sees one key: P is 1 whatever
/// Q and K are, so both are 0 except for rounding in D's sum. The floor is that of FlashAttention's tests.
void expect_one_key_moves_nothing(const Spec& spec, int first_step = 1);

}  // namespace flashbook::testing
