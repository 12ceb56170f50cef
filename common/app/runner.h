/// \file
/// The run loop: inputs, check, time.
#pragma once
#include "common/app/options.h"
#include "common/app/report.h"

namespace flashbook {

/// What a run leaves behind.
struct RunResult {
  Report report;
  Outputs outputs;  ///< of the last step that ran
};

/// Runs the steps: each is checked first and timed only if it is right. In a default run a step for latent
/// keys, or for a cache in e4m3, has a shape of its own. Throws InputError if no step asked for can run the
/// shape, or if there is too little memory; device::HardwareMissing without a GPU in a GPU build.
RunResult run(const Options& options, const Chapter& chapter, const Chapter* before);

/// The steps of `options` that can run its shape. Reports those that cannot; throws InputError if none is
/// left.
std::vector<int> runnable_steps(const Options& options, const Chapter& chapter, Report& report);

/// The shape in which `chapter` can be compared with one that takes e4m3: what is quantised is BF16 too, for
/// a chapter that takes that. Else the shape as it is, but without gaps.
Shape as_taken_by(const Chapter& chapter, const Shape& shape);

}  // namespace flashbook
