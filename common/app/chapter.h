/// \file
/// The descriptor through which programs, tests and benches access a chapter.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/cost.h"
#include "common/attention/operation.h"
#include "common/attention/spec.h"
#include "common/attention/tensors.h"
#include "common/device/device.h"
#include "common/device/ranks.h"
#include "common/features/definition.h"

namespace flashbook {

/// A call whose inputs have been moved to the devices that use them.
class DealtOut {
 public:
  virtual ~DealtOut() = default;
  /// Does the work; may be called any number of times. Returns when the work is done.
  virtual void run() = 0;
  /// Does the work `reps` times on all devices at once. Returns the seconds of each run, from the common
  /// start until the last device has finished.
  virtual std::vector<double> time(int reps) = 0;
  /// Copies the outputs back to the caller's tensors.
  virtual void collect() = 0;
};

/// Features that determine which tensors a step takes; other features only restrict or change the result.
constexpr Features kKinds = Feature::float32 | Feature::e4m3 | Feature::latent | Feature::e4m3_cache;

/// A row of a chapter's table: a version of the kernel that adds one idea. Its number is its position in the
/// table, counted from 1.
struct Step {
  const char* slug;  ///< identifies its results and tests, and selects it: "two_stages"
  const char* name;  ///< a short name for tables: "one thread per score"
  const char* idea;  ///< one sentence on what this step adds
  Operation operation;

  /// The features that its kernel supports beyond sizes and 16-bit types. Problems with any other feature are
  /// rejected.
  Features accepts = {};
  /// Features that a problem must have; they are accepted as well.
  Features needs = {};
  /// Launches the step on `stream`. `spec` is valid and supported, and the workspace has the right size.
  /// Returns before the work is done.
  void (*run)(const Spec& spec, const Tensors& tensors, device::Stream stream);

  /// Returns why the step cannot run `spec`, whose features it accepts, and a remedy: arithmetic limits, and
  /// features that cannot be combined. Empty if it can run `spec`. Null: no such limits.
  std::string (*limits)(const Spec& spec) = nullptr;
  /// Returns the bytes of device memory that it needs beyond inputs and outputs. Null: none.
  int64_t (*workspace)(const Spec& spec) = nullptr;
  /// The cost model: returns the bytes that it moves between its processor and device memory. Null: every
  /// tensor once.
  double (*memory)(const Spec& spec) = nullptr;
  /// Returns the bytes that the multiprocessors request, counted in sectors, whether or not a cache holds
  /// them. Null: there is no model.
  double (*requested)(const Spec& spec) = nullptr;
  /// Returns the number of leading bytes of the workspace that must be 0 before the first launch; every
  /// launch leaves them 0. Null: none.
  int64_t (*zeroed)(const Spec& spec) = nullptr;
  /// For a step that uses its tensors on other devices: copies the inputs of `tensors` there, untimed. `run`
  /// includes all of this. Null: the step uses the tensors in place.
  std::unique_ptr<DealtOut> (*deal_out)(const Spec& spec, const Tensors& tensors,
                                        const device::Together& together) = nullptr;
  bool same_bits = true;  ///< whether all launches give the same bits; false if sums depend on block order

  /// Returns whether its kernel handles these features.
  bool knows(Features features) const { return (accepts | needs).has(features); }
  /// Returns the features of `spec` that the step does not support.
  Features unknown_in(const Spec& spec) const { return features_of(spec) - accepts - needs; }
  /// Returns whether the step takes keys and a type like those of `spec`, whatever its other features.
  bool is_for(const Spec& spec) const {
    return (unknown_in(spec) & kKinds).empty() && features_of(spec).has(needs);
  }
  int64_t workspace_bytes(const Spec& spec) const { return workspace ? workspace(spec) : 0; }
  int64_t zeroed_bytes(const Spec& spec) const { return zeroed ? zeroed(spec) : 0; }
  double memory_bytes(const Spec& spec) const {
    return memory ? memory(spec) : compulsory_bytes(spec, operation);
  }
  double requested_bytes(const Spec& spec) const { return requested ? requested(spec) : 0; }
};

/// Returns a problem with as many keys as queries, one key head per query head, and no mask.
inline Spec square_spec(int batch, int heads, int seqlen, int head_dim, DType dtype) {
  return {{.batch = batch,
           .heads = heads,
           .kv_heads = heads,
           .seqlen_q = seqlen,
           .seqlen_k = seqlen,
           .head_dim = head_dim,
           .dtype = dtype,
           .scale = default_scale(head_dim)}};
}

/// Returns the problem that is used to compare chapters, which fills a GPU.
inline Spec spec_for_gpu(DType dtype = DType::bf16) { return square_spec(4, 16, 4096, 128, dtype); }

/// Returns a problem that the simulator finishes in seconds.
inline Spec spec_for_simulator(DType dtype = DType::bf16) { return square_spec(1, 2, 256, 64, dtype); }

/// Returns the largest score, scaled or not, for which an operation is accurate in a type; programs reject
/// inputs with larger ones. A forward pass handles every score that stays finite when multiplied by log2(e).
/// The backward pass, and ranks that merge parts, subtract a float32 log-sum-exp from an exponent: up to
/// 2^16, the result is accurate to half a unit of a probability in bf16.
constexpr float right_up_to(Operation operation, DType dtype, int ranks = 1) {
  return operation == Operation::forward && dtype != DType::e4m3 && ranks == 1
             ? std::numeric_limits<float>::max() / 1.5f
             : 0x1p16f;
}

constexpr DType kTypesOf16Bits[] = {DType::f16, DType::bf16};

/// The public description of a chapter. The defaults suit most chapters.
struct Chapter {
  int number;
  const char* name;                               ///< name of its folder and program: "01_naive_attention"
  const char* title;                              ///< "Naive attention"
  device::Place runs_on = device::Place::device;  ///< or Place::host, for a chapter that is CPU code
  std::span<const Step> steps;
  std::span<const DType> dtypes = kTypesOf16Bits;  ///< accepted types; the default problem has the default
  Spec gpu_spec = spec_for_gpu();                  ///< default on a GPU: fills the card
  Spec cpu_spec = spec_for_simulator();            ///< default in the simulator or on the host: takes seconds

  /// Returns the problem that its program runs by default.
  const Spec& default_spec() const { return device::machine() == device::Machine::gpu ? gpu_spec : cpu_spec; }
  int last_step() const { return int(steps.size()); }
  /// Returns the last step for such a problem.
  int last_step_for(const Spec& spec) const {
    int last = last_step();
    while (last > 1 && !step(last).is_for(spec)) --last;
    return last;
  }
  const Step& step(int number) const { return steps[std::size_t(number - 1)]; }
  const Step& step(std::string_view slug) const { return step(place(slug)); }
  /// Returns the number of a step, given by its slug or its number; 0 if there is none.
  int find(std::string_view step) const;
  /// Returns the number of a step. Throws InputError if there is none.
  int place(std::string_view step) const;
  /// Returns how to name a step: "split_q, ldmatrix or tuned, or a number from 1 to 3".
  std::string slugs() const;
  /// Returns why a step cannot run `spec` (already validated): either a feature that it does not accept, with
  /// the steps that do, or one of its limits. Empty if it can.
  std::string refusal(int step, const Spec& spec) const;
  std::string refusal(std::string_view step, const Spec& spec) const { return refusal(place(step), spec); }
  bool accepts(Features features) const {
    return std::ranges::any_of(steps, [&](const Step& s) { return s.knows(features); });
  }
  bool takes(DType dtype) const { return std::ranges::count(dtypes, dtype) > 0; }

  /// Returns the numbers of the steps that compute `operation`, ascending.
  std::vector<int> steps_of(Operation operation) const {
    std::vector<int> numbers;
    for (int number = 1; number <= last_step(); ++number)
      if (step(number).operation == operation) numbers.push_back(number);
    return numbers;
  }
};

/// Returns "step 4" or "steps 4 to 6, 9 and 10", for example, for ascending numbers.
std::string steps_text(const std::vector<int>& steps);

}  // namespace flashbook
