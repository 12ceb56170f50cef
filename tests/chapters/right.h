/// \file
/// Checks of a chapter's results.
#pragma once
#include <gtest/gtest.h>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/runner.h"

namespace flashbook::testing {

/// Runs every step for `operation` from `first_step` on, and compares it with the oracle.
inline void expect_steps_right(const Chapter& chapter, Operation operation, const Spec& spec,
                               const Inputs& inputs, int first_step = 1) {
  const Expected expected(operation, spec, inputs, all_rows(spec));
  const UploadedInputs uploaded(operation, spec, inputs, chapter.runs_on);
  for (int step : chapter.steps_of(operation)) {
    if (step < first_step || !chapter.step(step).is_for(spec)) continue;
    SCOPED_TRACE("step " + std::to_string(step) + ", " + describe(spec));
    ASSERT_EQ(chapter.refusal(step, spec), "");
    const Call call(chapter, spec, uploaded, step);
    call.run();
    EXPECT_TRUE(call.has_zeros()) << "the next launch would find counters that are not 0";
    EXPECT_EQ(describe_failure(expected.judge(call.download()), "the oracle"), "");
  }
}

/// Runs every step for `operation` like a reader, and compares it with the oracle and the previous chapter.
inline void expect_program_right(const Chapter& chapter, const Chapter* before, Operation operation) {
  const char* words[] = {chapter.name, "--seqlen", "300", "--causal", "--reps", "1"};
  Options options = *parse_command_line(int(std::size(words)), words, chapter).options;
  options.operation = operation;
  options.steps = chapter.steps_of(operation);
  const Report report = run(options, chapter, before).report;
  ASSERT_EQ(report.steps.size(), options.steps.size());
  for (const StepReport& step : report.steps) {
    const Step& descriptor = chapter.step(step.step);
    if (descriptor.needs.has(Feature::latent) || descriptor.needs.has(Feature::indices) ||
        descriptor.needs.has(Feature::e4m3_cache)) {  // needs different inputs
      EXPECT_NE(step.why_not, "");
      continue;
    }
    EXPECT_EQ(describe_failure(step.oracle, "the oracle"), "") << "step " << step.step;
    EXPECT_EQ(describe_failure(step.before, "the chapter before"), "") << "step " << step.step;
    EXPECT_FALSE(step.oracle.empty());
    EXPECT_EQ(step.before.empty(), before == nullptr) << report.before;
    EXPECT_GT(step.seconds, 0);
  }
}

}  // namespace flashbook::testing
