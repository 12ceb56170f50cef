/// \file
/// Measures the error of attention: chapter 6's study of FP8.
///
/// Inputs are f16. The reference is FP64 attention on them, before quantisation. It is compared with plain
/// attention in f16, with chapter 5, and with chapter 6 on quantised inputs: with one scale or several,
/// rotated or not, with the means of columns removed or not. --long repeats the study for many keys, with
/// long sums. Google Benchmark writes the results; a time is the median of the attention alone.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <span>

#include "bench/context.h"
#include "bench/reporter.h"
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/06_fp8/host/beside_steps.h"
#include "chapters/06_fp8/host/chapter.h"
#include "common/app/call.h"
#include "common/app/exit_code.h"
#include "common/app/progress.h"
#include "common/attention/error.h"
#include "common/attention/inputs.h"
#include "common/attention/oracle.h"
#include "common/attention/parallel.h"
#include "common/attention/random.h"
#include "common/numeric/float_formats.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

using device::Place;

constexpr uint64_t kSeed = 1, kRotationSeed = 2;
constexpr int64_t kRows = 4096;  // number of rows compared with FP64, for up to 4096 keys
constexpr int kTimedRuns = 11;   // number of runs on a GPU

/// A kind of inputs; values may also be one-signed, and columns may have means of either sign.
struct NamedInputs {
  const char* name;
  InputKind kind;
  float mean = 0;
  bool one_sign = false;
};
constexpr NamedInputs kInputs[] = {{.name = "accuracy/normal", .kind = InputKind::normal},
                                   {.name = "accuracy/outliers", .kind = InputKind::outliers},
                                   {.name = "accuracy/channels", .kind = InputKind::channels}};
constexpr NamedInputs kLongInputs[] = {{.name = "long/quarter", .kind = InputKind::normal, .mean = 0.25f},
                                       {.name = "long/one", .kind = InputKind::normal, .mean = 1},
                                       {.name = "long/one_sign", .kind = InputKind::normal, .one_sign = true},
                                       {.name = "long/all_equal", .kind = InputKind::all_equal}};

/// One way to compute attention.
struct Variant {
  const char* name;        ///< part of a result's name, or what follows the step there
  const char* title;       ///< the title in tables
  const Chapter* chapter;  ///< null if it is computed on the host, with the reference
  const char* step = "";
  Scaling scaling = Scaling::tensor;
  bool rotated = false, mean_subtracted = false;
  DType dtype = chapter == &kFp8 ? DType::e4m3 : DType::f16;

  std::string who() const {
    return chapter == nullptr ? name : concat("ch0", chapter->number, "/", step, name);
  }
  int place() const { return chapter->place(step); }
};
const Variant kVariants[] = {
    {"rounded", "FP64 on rounded inputs", nullptr},
    {"plain", "plain attention, S and P rounded", nullptr},
    {"", "chapter 5", &kFlashAttention3, "persistent"},
    {"plain", "plain attention, P rounded after its division", nullptr, "", Scaling::tensor, false, false,
     DType::e4m3},
    {"_tensor", "a scale per tensor, P up to 1", &kFp8, "straight"},
    {"_tensor", "a scale per tensor, P up to 256", &kFp8, "block_scales"},
    {"_block", "block scales", &kFp8, "block_scales", Scaling::block},
    {"_tensor", "a scale per tensor, rotated", &kFp8, "hadamard", Scaling::tensor, true},
    {"_block", "block scales, rotated", &kFp8, "hadamard", Scaling::block, true},
    {"_block", "block scales, rotated, promoted sums", &kFp8, "promoted_sums", Scaling::block, true},
    {"_tensor", "persistent: a scale per tensor, P up to 64", &kFp8, "persistent"},
    {"_rotated", "persistent: the same, rotated", &kFp8, "persistent", Scaling::tensor, true},
    {"_centred", "persistent: means removed", &kFp8, "persistent", Scaling::tensor, false, true},
    {"_centred_rotated", "persistent: means removed, rotated", &kFp8, "persistent", Scaling::tensor, true,
     true},
    {"_centred_rotated", "row sums: the same", &kFp8, "row_sums", Scaling::tensor, true, true},
    {"_centred_rotated", "linear exp: the same", &kFp8, "linear_exp", Scaling::tensor, true, true},
};
const Variant kLongVariants[] = {
    {"", "chapter 5", &kFlashAttention3, "persistent"},
    {"plain", "plain attention, P rounded after its division", nullptr, "", Scaling::tensor, false, false,
     DType::e4m3},
    {"", "persistent, means kept", &kFp8, "persistent"},
    {"", "promoted sums, means kept", &kFp8, "promoted_sums"},
    {"_centred", "persistent, means removed", &kFp8, "persistent", Scaling::tensor, false, true},
    {"_centred", "row sums, means removed", &kFp8, "row_sums", Scaling::tensor, false, true},
    {"_centred", "linear exp, means removed", &kFp8, "linear_exp", Scaling::tensor, false, true},
    {"_centred", "promoted sums, means removed", &kFp8, "promoted_sums", Scaling::tensor, false, true},
};

/// Data shared by all variants of one kind of inputs.
struct Problem {
  Spec spec;                      ///< the f16 shape
  UploadedInputs inputs;          ///< rounded to f16, on the machine
  Reference reference;            ///< FP64 on the inputs before rounding
  Reference rounded;              ///< FP64, and plain attention, on the inputs as rounded to f16
  std::vector<double> plain_fp8;  ///< the same in e4m3, computed below
};

/// Computes FP8 attention like a framework without a fused kernel: P is divided by its row's sum, which makes
/// it small, and then rounded to e4m3. Inputs have a scale per tensor; everything else is exact.
std::vector<double> plain_fp8(Spec spec, Inputs inputs, const std::vector<int64_t>& rows) {
  spec.dtype = DType::e4m3;
  round_inputs(spec, inputs);
  const int d = spec.head_dim;
  std::vector<double> o(rows.size() * d);
  parallel_for(int64_t(rows.size()), [&](int64_t r) {
    const int64_t head = rows[r] / spec.seqlen_q;
    const int64_t first_key = head / (spec.heads / spec.kv_heads) * spec.seqlen_k;
    std::vector<double> p(spec.seqlen_k);
    for (int64_t j = 0; j < spec.seqlen_k; ++j)
      for (int c = 0; c < d; ++c)
        p[j] += double(inputs.q[rows[r] * d + c]) * inputs.k[(first_key + j) * d + c] * spec.scale;
    const double largest = std::ranges::max(p);
    double sum = 0;
    for (double& element : p) sum += element = std::exp(element - largest);
    for (int64_t j = 0; j < spec.seqlen_k; ++j)
      for (int c = 0; c < d; ++c)
        o[r * d + c] += double(to_float(to_e4m3(float(p[j] / sum)))) * inputs.v[(first_key + j) * d + c];
  });
  return o;
}

/// Returns whether the mean of a column of V is positive.
bool is_positive(int64_t column) { return random_bits(kSeed, column) >> 63 == 0; }

Problem make_problem(const Spec& spec, const NamedInputs& kind) {
  Spec unrounded = spec;
  unrounded.dtype = DType::f32;
  Inputs inputs = make_inputs(unrounded, kind.kind, kSeed);
  parallel_for(int64_t(spec.batch) * spec.kv_heads * spec.seqlen_k, [&](int64_t row) {
    for (int c = 0; c < spec.head_dim; ++c) {
      float& value = inputs.v[row * spec.head_dim + c];
      if (kind.one_sign) value = std::abs(value);
      value += is_positive(row / spec.seqlen_k * spec.head_dim + c) ? kind.mean : -kind.mean;
    }
  });
  // The same number of products for every length; a row of 4096 keys takes milliseconds.
  const int64_t row_count = std::min(kRows, kRows * 4096 / spec.seqlen_k);
  const std::vector<int64_t> rows = sample_rows(spec, row_count, kSeed);
  ProgressLine progress(std::string(kind.name) + ", attention in FP64");
  Reference reference =
      make_reference(unrounded, inputs, rows, [&](double done) { progress.update(done / 2); });
  std::vector<double> fp8 = plain_fp8(spec, inputs, rows);
  for (auto* values : {&inputs.q, &inputs.k, &inputs.v}) round_to(spec.dtype, *values);
  return {
      .spec = spec,
      .inputs = UploadedInputs(Operation::forward, spec, inputs, Place::device),
      .reference = std::move(reference),
      .rounded = make_reference(spec, inputs, rows, [&](double done) { progress.update((1 + done) / 2); }),
      .plain_fp8 = std::move(fp8)};
}

/// Returns the median time of several runs on a GPU; of one run in the simulator, whose time is meaningless.
double seconds_of(const std::function<double()>& time) {
  std::vector<double> seconds(device::machine() == device::Machine::gpu ? kTimedRuns : 1);
  std::ranges::generate(seconds, time);
  return median(seconds);
}

/// A variant's output and time.
struct Result {
  std::vector<double> o;  ///< [rows of the reference, head_dim]
  double seconds = 0, quantise_seconds = 0;
};

/// Returns the problem's inputs in e4m3, from chapter 6's quantiser. Adds the quantiser's time to the result.
UploadedInputs quantised(const Variant& variant, const Spec& spec, const Problem& problem, Result& result) {
  UploadedInputs inputs(Operation::forward, spec, Place::device);
  const auto scales = [&](TensorId id) { return static_cast<float*>(inputs.scales(id).data()); };
  const device::Buffer workspace(Place::device, quantise_workspace_bytes(spec));
  const Quantised to{.q = inputs.values(TensorId::q).data(),
                     .k = inputs.values(TensorId::k).data(),
                     .v = inputs.values(TensorId::v).data(),
                     .q_scale = scales(TensorId::q),
                     .k_scale = scales(TensorId::k),
                     .v_scale = scales(TensorId::v),
                     .k_mean = static_cast<float*>(inputs.means(TensorId::k).data()),
                     .v_mean = static_cast<float*>(inputs.means(TensorId::v).data()),
                     .workspace = workspace.data()};
  const Tensors& from = problem.inputs.tensors();
  result.quantise_seconds = seconds_of([&] {
    device::flush_l2(nullptr);
    return device::time_on_device(nullptr, [&] {
      quantise_fp8(spec, DType::f16, from.q, from.k, from.v, to, variant.rotated, kRotationSeed, nullptr);
    });
  });
  return inputs;
}

/// Runs `call` and adds its time and its rows to the result.
void finish(const Call& call, const Problem& problem, Result& result) {
  result.seconds = seconds_of([&] { return call.time(); });
  const int d = problem.spec.head_dim;
  const std::vector<float> o = call.download(problem.reference.rows).o;
  for (const int64_t row : problem.reference.rows)
    result.o.insert(result.o.end(), o.begin() + row * d, o.begin() + (row + 1) * d);
}

Result run(const Variant& variant, const Problem& problem) {
  if (variant.chapter == nullptr) {
    const Reference& rounded = problem.rounded;
    if (variant.dtype == DType::e4m3) return {.o = problem.plain_fp8};
    if (variant.name == std::string_view("rounded")) return {.o = rounded.o};
    return {.o = {rounded.plain_o.begin(), rounded.plain_o.end()}};
  }
  Spec spec = problem.spec;
  spec.dtype = variant.dtype;
  spec.e4m3.scaling = variant.scaling;
  spec.e4m3.mean_subtracted = variant.mean_subtracted;
  if (const std::string why = variant.chapter->refusal(variant.step, spec); !why.empty())
    throw InputError(why);

  Result result;
  if (spec.dtype != DType::e4m3) {
    finish(Call(*variant.chapter, spec, problem.inputs, variant.place()), problem, result);
    return result;
  }
  const UploadedInputs inputs = quantised(variant, spec, problem, result);
  finish(Call(*variant.chapter, spec, inputs, variant.place()), problem, result);
  return result;
}

/// Reports a result to Google Benchmark.
void report(benchmark::State& state, const Variant& variant, const Problem& problem) {
  Result result;
  try {
    result = run(variant, problem);
  } catch (const std::exception& error) {
    state.SetLabel("skipped");
    state.SkipWithError(error.what());
    return;
  }
  const std::vector<double>& want = problem.reference.o;
  double square = 0, norm = 0, largest = 0, along = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = result.o[i] - want[i];
    square += error * error, norm += want[i] * want[i], along += result.o[i] * want[i];
    largest = std::max(largest, std::abs(error));
  }
  for (auto _ : state) state.SetIterationTime(result.seconds);
  state.SetLabel(variant.title);
  state.counters = {{"rmse", std::sqrt(square / double(want.size()))},
                    {"relative_rms", std::sqrt(square / norm)},
                    {"error", largest},
                    {"left", along / norm},
                    {"rows", double(problem.reference.rows.size())},
                    {"batch", problem.spec.batch},
                    {"heads", problem.spec.heads}};
  if (variant.chapter == &kFp8 && device::machine() == device::Machine::gpu)
    state.counters["quantise_ms"] = result.quantise_seconds * 1e3;
}

struct Options {
  int batch = 4, heads = 16, seqlen = 4096, head_dim = 128;
  bool long_rows = false;
  std::string out;
};

/// Inputs of a shape, shared by all variants of a study.
struct Case {
  NamedInputs inputs;
  Spec spec;
};

/// Returns three kinds of inputs, or four kinds with long rows.
std::vector<Case> cases_of(const Options& options) {
  const Spec spec{{.batch = options.batch,
                   .heads = options.heads,
                   .kv_heads = options.heads,
                   .seqlen_q = options.seqlen,
                   .seqlen_k = options.seqlen,
                   .head_dim = options.head_dim,
                   .dtype = DType::f16,
                   .scale = default_scale(options.head_dim)}};
  validate(spec);
  std::vector<Case> cases;
  if (!options.long_rows) {
    for (const NamedInputs& inputs : kInputs) cases.push_back({inputs, spec});
    return cases;
  }
  for (const NamedInputs& inputs : kLongInputs)
    for (int seqlen = 1024; seqlen <= options.seqlen; seqlen *= 4) {
      Spec part = spec;
      part.seqlen_k = seqlen;
      // A few queries in the simulator: the length of a row does not depend on their number.
      part.seqlen_q = device::machine() == device::Machine::gpu ? seqlen : 64;
      cases.push_back({inputs, part});
    }
  return cases;
}

int study(const Options& options) {
  const std::vector<Case> cases = cases_of(options);
  const Spec& spec = cases.front().spec;
  const Cell cell{&kFp8, 1,
                  spec};  // a kernel's shape, so that the context describes the machine that runs kernels
  for (const auto& [key, value] : measuring_context({&cell, 1})) benchmark::AddCustomContext(key, value);
  const bool simulated = device::machine() == device::Machine::simulator;
  if (simulated) benchmark::AddCustomContext("exact", std::getenv("FLASHBOOK_SIM_EXACT"));
  const std::span<const Variant> variants =
      options.long_rows ? std::span<const Variant>(kLongVariants) : kVariants;
  std::cerr << variants.size() << " ways to compute attention, of " << cases.size()
            << " inputs each, the last with " << describe(cases.back().spec) << ", compared with FP64"
            << (simulated ? "; in the simulator the default shape takes minutes, a smaller --seqlen less"
                          : "")
            << std::endl;

  std::vector<std::optional<Problem>> problems(cases.size());  // created when first needed, then freed
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const Variant& variant : variants) {
      const std::string name = std::string(cases[i].inputs.name) + "/" + variant.who() + "/" +
                               std::string(name_of(variant.dtype)) + "/d" + std::to_string(spec.head_dim) +
                               "/full/n" + std::to_string(cases[i].spec.seqlen_k);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&, i](benchmark::State& state) {
                                     if (!problems[i]) {
                                       std::ranges::fill(problems, std::nullopt);
                                       problems[i] = make_problem(cases[i].spec, cases[i].inputs);
                                     }
                                     report(state, variant, *problems[i]);
                                   })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  ResultReporter reporter(options.out);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}

}  // namespace
}  // namespace flashbook

int main(int argc, char** argv) {
  using namespace flashbook;
  // Hopper's tensor cores keep few bits of FP8 sums. Without this the simulator would be more precise.
  setenv("FLASHBOOK_SIM_EXACT", "1", 0);
  Options options;
  if (device::machine() == device::Machine::simulator)
    options = {.batch = 1, .heads = 4, .seqlen = 1024, .out = {}};
  CLI::App app("Flashbook's study of accuracy: attention in f16 and FP8 against FP64", "accuracy");
  app.add_option("--batch", options.batch, "Batch")->capture_default_str();
  app.add_option("--heads", options.heads, "Heads")->capture_default_str();
  app.add_option("--seqlen", options.seqlen, "Queries and keys per head")->capture_default_str();
  app.add_flag("--long", options.long_rows,
               "Values with means, one-signed and all equal, with 1k, 4k, ... keys up to --seqlen");
  app.add_option("--head-dim", options.head_dim, "64, 128 or 256")
      ->capture_default_str()
      ->check(CLI::IsMember({64, 128, 256}));
  app.add_option("--out", options.out, "Write the results to this file, which is complete after every cell");
  return exit_code("accuracy", [&] {
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      std::cout << app.help();
      return kRight;
    } catch (const CLI::ParseError& error) {
      throw InputError(std::string(error.what()) + " (--help lists the options)");
    }
    return study(options);
  });
}
