/// \file
/// The ablation: a step with one switch changed at a time, as the steps of a chapter.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

/// Return the rows of an ablation: the tuned step of chapter 4, the persistent steps of chapters 5 and 7, and
/// the ring of chapter 8. The first row is the unchanged step.
std::span<const Step> ablation_04();
std::span<const Step> ablation_05();
std::span<const Step> ablation_07();
std::span<const Step> ablation_08();

/// Runs row `which`, 1 ..., of chapters 5 and 7; one function per head dimension, compiled separately.
template <int kHeadDim>
void run_ablation_05(const Spec& spec, const Tensors& tensors, device::Stream stream, int which);
template <int kHeadDim>
void run_ablation_07(const Spec& spec, const Tensors& tensors, device::Stream stream, int which);

/// The reason for rejecting types other than bf16.
inline constexpr const char* kOnlyBf16 = "the ablation supports only bf16: choose it with --dtype";

/// Returns a modified step. Its slug is part of the result's name: ablation/ch05/one_loop/...
inline Step row(Step step, const char* slug, const char* idea, decltype(Step::limits) limits,
                decltype(Step::run) run) {
  step.slug = step.name = slug, step.idea = idea, step.limits = limits, step.run = run;
  return step;
}

/// Returns the previous step, interleaved with the versions.
inline Step before(Step step) {
  step.slug = step.name = "step_before";
  return step;
}

}  // namespace flashbook
