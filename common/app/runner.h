/// \file
/// The run loop, which prepares inputs, checks steps and times them.
#pragma once
#include "common/app/options.h"
#include "common/app/report.h"

namespace flashbook {

struct RunResult {
  Report report;
  Outputs outputs;  ///< outputs of the last step that ran
};

/// Runs the steps: each is checked first and timed only if it is right. In a default run, steps for latent
/// keys or an e4m3 cache use their own problem. Throws InputError if no selected step can run the problem, or
/// if there is too little memory; throws device::HardwareMissing in a GPU build without a GPU.
RunResult run(const Options& options, const Chapter& chapter, const Chapter* before);

/// Returns the steps of `options` that can run its problem. Reports the others; throws InputError if none is
/// left.
std::vector<int> runnable_steps(const Options& options, const Chapter& chapter, Report& report);

/// Returns the problem in which `chapter` can be compared with a chapter that accepts e4m3: quantised values
/// are also BF16 values, if `chapter` accepts those. Otherwise returns the same problem, but without gaps.
Spec as_taken_by(const Chapter& chapter, const Spec& spec);

}  // namespace flashbook
