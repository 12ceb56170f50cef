#include "common/app/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <optional>
#include <thread>

#include "common/app/call.h"
#include "common/app/expected.h"
#include "common/app/progress.h"
#include "common/attention/check.h"
#include "common/attention/cost.h"
#include "common/attention/error.h"
#include "common/attention/inputs.h"
#include "common/device/host_memory.h"

namespace flashbook {
namespace {

using device::Place;

// Limits on the work of a check, in FLOPs of the problem. A check at each limit takes seconds on a laptop.
constexpr double kFullCheck = 1.5e10;     // up to this size the oracle checks every row
constexpr double kSampleCheck = 4e9;      // for larger problems, the oracle's approximate work
constexpr double kBeforeOnHost = 3e10;    // limit for running the previous chapter for comparison on the CPU,
constexpr double kBeforeSimulated = 1e9;  // limit in the simulator,
constexpr double kBeforeOnGpu = 1e15;     // and limit on a GPU

constexpr int kDefaultReps = 30;
constexpr double kTimingSeconds = 0.5;  // for all runs of a step, unless --reps gives their number

/// Returns the median time of one run, over `reps` runs or as many as the time allows: {seconds, runs}.
std::pair<double, int> time(const Call& call, int step, std::optional<int> reps) {
  using clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  const auto start = clock::now();
  ProgressLine progress("timing step " + std::to_string(step));
  do {
    seconds.push_back(call.time());
    progress.update(double(seconds.size()) / reps.value_or(kDefaultReps));
  } while (int(seconds.size()) < reps.value_or(kDefaultReps) &&
           (reps || std::chrono::duration<double>(clock::now() - start).count() < kTimingSeconds));
  return {median(seconds), int(seconds.size())};
}

/// Throws InputError if the problem does not fit in memory: otherwise the program might be killed after
/// minutes of work.
void check_memory(const Chapter& chapter, const Options& options, const std::vector<int>& steps,
                  bool shares_host_memory) {
  const Spec& spec = options.spec;
  double workspace = 0;
  for (int step : steps) workspace = std::max(workspace, double(chapter.step(step).workspace_bytes(spec)));
  // The device holds the encoded tensors. The host holds inputs as floats, their encodings, and two sets of
  // outputs.
  double machine = workspace, host = 0;
  for (const TensorSpec& tensor : tensors_of(options.operation)) {
    const double encoded =
        double(elements_spanned(spec, tensor.id)) * double(size_of(type_of(spec, tensor.id)));
    const double decoded = double(elements_of(spec, tensor.id)) * sizeof(float);
    machine += encoded;
    host += tensor.role == Role::input ? encoded + decoded : 2 * decoded;
  }
  if (shares_host_memory) host += machine;
  const auto require = [](double needed, int64_t free, const char* memory) {
    if (needed > double(free))
      throw InputError("this shape needs ", format_amount(needed, "B"), memory,
                       format_amount(double(free), "B"),
                       " are free: make --batch, --heads or --seqlen smaller");
  };
  require(host, device::host_memory_available(), " of memory and ");
  if (!shares_host_memory) require(machine, device::info().memory_free, " of GPU memory and ");
}

/// Returns why `chapter` may be inaccurate in an operation for scores up to `largest`; empty if it is not.
std::string why_not_scores(const Chapter& chapter, Operation operation, const Spec& spec, double largest) {
  const float limit = right_up_to(operation, spec.dtype, spec.sharding.ranks);
  if (largest <= limit) return "";
  return concat(std::setprecision(2), "scores may reach ", largest,
                " (the longest row of Q times that of K, times the scale), but chapter ", chapter.number,
                " is accurate only up to ", limit, ": make --scale or the inputs smaller");
}

std::vector<int64_t> rows_to_check(const Options& options, Report& report) {
  const Spec& spec = options.spec;
  double row_flops = 2.0 * (spec.head_dim + spec.value_dim) * spec.seqlen_k;
  if (options.operation ==
      Operation::backward)  // a row of dQ, or a row of dK and dV, which sums over a group
    row_flops += 6.0 * spec.head_dim * spec.seqlen_q * (double(spec.heads) / spec.kv_heads);
  const bool small = row_flops * double(spec.q_rows()) <= kFullCheck;
  if (options.check == CheckMode::off) {
    report.checked_rows = "nothing (--check off)";
    return {};
  }
  if (options.check == CheckMode::full || (options.check == CheckMode::automatic && small)) {
    report.checked_rows = "every row";
    return all_rows(spec);
  }
  const auto rows =
      sample_rows(spec, int64_t(std::clamp(kSampleCheck / row_flops, 16.0, 4096.0)), options.seed);
  report.checked_rows = std::to_string(rows.size()) + " of " + std::to_string(spec.q_rows()) + " rows";
  return rows;
}

std::vector<float> front(const std::vector<float>& values, int64_t count) {
  return {values.begin(), values.begin() + count};
}

/// The results of the previous chapter, for as many whole heads as the time allows.
struct Before {
  Spec spec;  ///< the leading heads of the problem, as a separate problem
  Outputs outputs;
};

/// Each key head is stored next to the query heads that read it and forms a separate problem: the first
/// `groups` key heads are a problem whose tensors are the leading parts of the whole ones.
Spec leading_groups(const Spec& spec, int groups) {
  Spec part = spec;
  part.batch = groups;
  part.heads = spec.heads / spec.kv_heads;
  part.kv_heads = 1;
  return part;
}

/// Runs a chapter without mean subtraction on a mean-subtracted problem: it computes attention over K and V
/// without their means, which its type can represent, and the means are added to its outputs.
Outputs run_without_means(const Chapter& before, const Spec& spec, Inputs inputs, int step) {
  const auto head_of = [&](int64_t row, int seqlen) { return row / seqlen * spec.head_dim; };
  for (TensorId id : {TensorId::k, TensorId::v})
    for (int64_t i = 0; i < spec.k_elements(); ++i)
      inputs[id][i] -= inputs.means(id)[head_of(i / spec.head_dim, spec.seqlen_k) + i % spec.head_dim];
  Outputs outputs = run_once(before, spec, inputs, step);
  for (int64_t row = 0; row < spec.q_rows(); ++row) {
    if (std::isinf(outputs.lse[row])) continue;  // the row sees no key
    const int64_t kv_head = head_of(row / (spec.heads / spec.kv_heads), spec.seqlen_q);
    double product = 0;
    for (int c = 0; c < spec.head_dim; ++c) {
      const int64_t i = row * spec.head_dim + c;
      outputs.o[i] += inputs.v_mean[kv_head + c];
      product += double(inputs.q[i]) * inputs.k_mean[kv_head + c];
    }
    outputs.lse[row] += float(spec.scale * product);
  }
  return outputs;
}

std::optional<Before> run_before(Operation operation, const Spec& spec, const Inputs& inputs,
                                 const Chapter& before, Report& report) {
  const auto skip = [&](const std::string& reason) {
    report.before = "not compared with chapter " + std::to_string(before.number) + ": " + reason;
    return std::nullopt;
  };
  const Spec taken = as_taken_by(before, spec);
  // Decoding is a forward pass with the same list of tensors.
  const int step = before.last_step_for(taken);
  const Operation theirs = before.step(step).operation;
  if (operation == Operation::backward || tensors_of(theirs).data() != tensors_of(operation).data())
    return skip("it computes a different operation");
  if (!before.takes(taken.dtype)) return skip("it does not support " + std::string(name_of(spec.dtype)));
  if (const std::string reason = why_not_scores(before, theirs, taken, largest_score(spec, inputs));
      !reason.empty())
    return skip(reason);
  const bool gpu = before.runs_on == Place::device && device::machine() == device::Machine::gpu;
  const double budget = before.runs_on == Place::host ? kBeforeOnHost : gpu ? kBeforeOnGpu : kBeforeSimulated;

  const int all_groups = spec.batch * spec.kv_heads;
  const double group_flops = flops(leading_groups(spec, 1));
  const int groups = int(std::clamp(budget / std::max(group_flops, 1.0), 1.0, double(all_groups)));
  if (group_flops > 20 * budget) return skip("it would take minutes for one head of this shape");
  const Spec part = leading_groups(taken, groups);
  if (const std::string reason = before.refusal(step, part); !reason.empty()) return skip(reason);

  Inputs leading;  // left empty if the part is the whole: copying gigabytes takes seconds
  if (groups < all_groups) {
    leading.q = front(inputs.q, part.q_elements());
    leading.k = front(inputs.k, part.k_elements());
    leading.v = front(inputs.v, part.v_elements());
    if (spec.e4m3.mean_subtracted) {
      leading.k_mean = front(inputs.k_mean, part.k_columns());
      leading.v_mean = front(inputs.v_mean, part.k_columns());
    }
  }
  const Inputs& part_inputs = groups < all_groups ? leading : inputs;
  ProgressLine progress("running chapter " + std::to_string(before.number) + " for comparison");
  try {
    const std::string heads =
        concat(int64_t(groups) * part.heads, " of ", int64_t(spec.batch) * spec.heads, " heads");
    report.before = concat(groups == all_groups ? "every head" : heads, " against chapter ", before.number,
                           ", step ", step);
    return Before{part, spec.e4m3.mean_subtracted && !part.e4m3.mean_subtracted
                            ? run_without_means(before, part, part_inputs, step)
                            : run_once(before, part, part_inputs, step)};
  } catch (const device::HardwareMissing&) {
    return skip("there is no GPU to run it on");
  }
}

/// Returns the part of a reference that covers the leading heads of its problem.
Reference leading_rows(const Reference& reference, const Spec& spec) {
  Reference part = reference;
  part.rows.resize(std::ranges::lower_bound(part.rows, spec.q_rows()) - part.rows.begin());
  const std::size_t count = part.rows.size();
  part.o.resize(count * spec.head_dim), part.plain_o.resize(count * spec.head_dim);
  part.lse.resize(count), part.o_bound.resize(count), part.lse_bound.resize(count);
  return part;
}

/// Describes errors in the previous chapter's outputs; empty if there are none. If there are any, a
/// difference is no evidence against this chapter.
std::string wrong_before(const Before& before, const Reference& reference) {
  const Reference part = leading_rows(reference, before.spec);
  if (part.rows.empty()) return "";
  return describe_failure(by_tensor(check(before.spec, part, before.outputs)), "the oracle");
}

CheckResult compare_with(const Before& before, const Outputs& outputs, const Reference& reference) {
  if (before.outputs.lse.size() == outputs.lse.size())
    return compare(before.spec, outputs, before.outputs, reference);
  const Outputs part{front(outputs.o, before.spec.q_elements()), front(outputs.lse, before.spec.q_rows())};
  return compare(before.spec, part, before.outputs, reference);
}

void name_machine(const Chapter& chapter, Report& report) {
  if (chapter.runs_on == Place::host) {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    report.machine = "CPU, " + std::to_string(cores) + (cores == 1 ? " core" : " cores");
    return;
  }
  report.machine = device::info().name;
  report.on_gpu = device::machine() == device::Machine::gpu;
  report.simulated = !report.on_gpu;
}

/// Returns the default problem, with the kind of keys that the step accepts, and lists of a quarter of them
/// if it needs any.
Spec spec_for(const Step& step, Spec spec) {
  if (step.needs.has(Feature::latent)) spec = with_latent_keys(spec);
  if (step.needs.has(Feature::e4m3_cache)) spec = with_e4m3_cache(spec);
  if (step.needs.has(Feature::indices)) spec = with_indices(spec, std::max(1, spec.seqlen_k / 4), 1);
  return spec;
}

/// Returns the step's bytes by its cost model; 0 if that needs a kernel that the program lacks.
double modelled_bytes(const Step& step, const Spec& spec) try {
  return step.memory_bytes(spec);
} catch (const std::exception&) {
  return 0;
}

/// Runs the steps that can run the problem of `options`.
RunResult run_spec(const Options& options, const Chapter& chapter, const Chapter* before) {
  const Spec& spec = options.spec;
  RunResult result;
  Report& report = result.report;
  report.chapter = chapter.number;
  report.name = chapter.name;
  report.title = chapter.title;
  report.shape = describe(spec);
  name_machine(chapter, report);
  const std::vector<int> steps = runnable_steps(options, chapter, report);
  check_memory(chapter, options, steps, !report.on_gpu);

  Inputs inputs = options.inputs ? *options.inputs : make_inputs(spec, InputKind::drifting, options.seed);
  {
    ProgressLine progress("completing the inputs");
    const Chapter* forward = chapter.steps_of(Operation::forward).empty() ? before : &chapter;
    if (complete_inputs(options.operation, spec, options.seed, inputs, forward))
      report.before = "O and the log-sum-exp are those of chapter " + std::to_string(forward->number);
  }
  if (const std::string reason =
          why_not_scores(chapter, options.operation, spec, largest_score(spec, inputs));
      !reason.empty())
    throw InputError(reason);
  const std::vector<int64_t> rows = rows_to_check(options, report);
  std::optional<Expected> expected;
  std::optional<Before> earlier;
  if (!rows.empty()) {
    ProgressLine progress("computing the oracle");
    expected.emplace(options.operation, spec, inputs, rows, [&](double done) { progress.update(done); });
  }
  if (!rows.empty() && before != nullptr && options.operation != Operation::backward)
    earlier = run_before(options.operation, spec, inputs, *before, report);
  if (const std::string wrong = earlier ? wrong_before(*earlier, expected->forward()) : ""; !wrong.empty()) {
    report.before =
        concat("not compared with chapter ", before->number, ", whose own results are wrong: ", wrong);
    earlier.reset();
  }

  const UploadedInputs uploaded(options.operation, spec, inputs, chapter.runs_on);
  for (int step : steps) {
    const Step& row = chapter.step(step);
    const Spec book = spec_for(row, chapter.gpu_spec);
    StepReport entry{.step = step,
                     .slug = row.slug,
                     .name = row.name,
                     .flops = flops(spec, row.operation),
                     .memory_bytes = row.memory_bytes(spec),
                     .requested_bytes = row.requested_bytes(spec),
                     .workspace_bytes = double(row.workspace_bytes(spec)),
                     .book_shape = describe(book),
                     .book_memory_bytes = modelled_bytes(row, book)};
    const Call call(chapter, spec, uploaded, step, options.together);
    {
      ProgressLine progress("running step " + std::to_string(step));
      device::take_suspects();
      call.run();
    }
    result.outputs = call.download();
    if (expected) entry.oracle = expected->judge(result.outputs);
    if (earlier) entry.before = by_tensor(compare_with(*earlier, result.outputs, expected->forward()));
    if (!entry.ok()) entry.suspects = device::take_suspects();
    // The simulator's time is unrelated to a GPU's, so one run is enough.
    const auto reps = report.simulated ? std::optional(options.reps.value_or(1)) : options.reps;
    if (entry.ok()) std::tie(entry.seconds, entry.reps) = time(call, step, reps);
    report.steps.push_back(std::move(entry));
  }
  std::ranges::sort(report.steps, {}, &StepReport::step);
  return result;
}

/// In a default run, a step for latent keys, or for an e4m3 cache, uses the default problem with such keys,
/// and runs separately.
void run_other_keys(const Options& options, const Chapter& chapter, Report& report) {
  if (options.inputs || options.spec != chapter.default_spec()) return;
  for (StepReport& entry : report.steps) {
    const Step& step = chapter.step(entry.step);
    if ((step.needs & (Feature::latent | Feature::e4m3_cache)).empty()) continue;
    Options own = options;
    own.spec = spec_for(step, options.spec);
    own.steps = {entry.step};
    const Report ran = run_spec(own, chapter, nullptr).report;
    entry = ran.steps.front();
    entry.shape = ran.shape;
  }
}

}  // namespace

Spec as_taken_by(const Chapter& chapter, const Spec& spec) {
  Spec taken = spec;
  taken.layout = {};
  taken.sharding.ranks = 1;
  taken.sharding.order = {};
  if (!chapter.takes(spec.dtype)) taken.dtype = output_type(spec.dtype);
  taken.e4m3.mean_subtracted = spec.e4m3.mean_subtracted && taken.dtype == DType::e4m3;
  taken.e4m3.cache = false;  // the values of an e4m3 cache are 16-bit values, too
  return taken;
}

std::vector<int> runnable_steps(const Options& options, const Chapter& chapter, Report& report) {
  std::vector<int> steps;
  std::string reason;
  for (int step : options.steps) {
    const std::string why_not = chapter.refusal(step, options.spec);
    if (why_not.empty()) {
      steps.push_back(step);
      continue;
    }
    reason = why_not;
    const Step& row = chapter.step(step);
    report.steps.push_back({.step = step, .slug = row.slug, .name = row.name, .why_not = why_not});
  }
  if (steps.empty()) throw InputError(reason);
  return steps;
}

RunResult run(const Options& options, const Chapter& chapter, const Chapter* before) {
  RunResult result = run_spec(options, chapter, before);
  run_other_keys(options, chapter, result.report);
  return result;
}

}  // namespace flashbook
