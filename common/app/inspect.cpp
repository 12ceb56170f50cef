#include "common/app/inspect.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <limits>
#include <ostream>

#include "common/app/call.h"
#include "common/app/table.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/attention/inputs.h"
#include "common/attention/npy.h"
#include "common/attention/oracle.h"
#include "common/features/pages/pages.h"

namespace flashbook {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kPrintedKeys = 128;  // for a row with more keys, each tile's largest weights are printed
constexpr int kLargest = 4;

int tiles_of(const Spec& spec) { return ceil_div(spec.seqlen_k, kInspectedKeys); }
int end_of(const Spec& spec, int tile) { return std::min((tile + 1) * kInspectedKeys, spec.seqlen_k); }

/// A row's outputs: O, the log-sum-exp, and the possible error of O.
struct Answer {
  std::vector<float> o;
  float lse;
  double bound;
};
using Ask = std::function<Answer(const Inputs&)>;

/// Returns the key head that a query head reads, over all batch entries.
int64_t head_of_keys(const Spec& spec, int batch, int head) {
  return int64_t(batch) * spec.kv_heads + head / (spec.heads / spec.kv_heads);
}

/// Returns inputs with K or V changed: `change` receives the rows of the inspected row's key head, [seqlen_k,
/// head_dim], for each batch entry.
Inputs changed(const Spec& spec, const Inputs& inputs, TensorId id, const RowOf& row, bool alone,
               const std::function<void(float*)>& change) {
  const bool paged = spec.paging.rows > 0;
  Inputs found = paged ? gather_pages(spec, inputs) : inputs;
  std::vector<float>& values = found[id];
  if (alone) std::ranges::fill(values, 0.0f);
  if (id == TensorId::v) std::ranges::fill(found.v_mean, 0.0f);
  for (int batch = 0; batch < spec.batch; ++batch)  // other batch entries may share its pages
    change(values.data() + head_of_keys(spec, batch, row.head) * spec.seqlen_k * spec.head_dim);
  return paged ? scatter_pages(spec, found) : found;
}

/// Reconstructs the row with `ask`, and computes how far P may be off in each tile.
InspectedRow trace(const Spec& spec, const Inputs& inputs, const RowOf& row, const Ask& ask,
                   std::vector<double>& bound) {
  const int d = spec.head_dim, tiles = tiles_of(spec);
  const Answer whole = ask(inputs);
  InspectedRow found;
  found.lse = whole.lse;
  found.answer = whole.o;
  for (int tile = 0; tile < tiles; ++tile) {
    const int begin = tile * kInspectedKeys, end = end_of(spec, tile);
    const Answer weights = ask(changed(spec, inputs, TensorId::v, row, true, [&](float* v) {
      for (int key = begin; key < end; ++key) v[int64_t(key) * d + key - begin] = 1.0f;
    }));
    bound.push_back(weights.bound);
    for (int key = begin; key < end; ++key) {
      const float p = weights.o[key - begin];
      found.p.push_back(p);
      found.scores.push_back(p == 0.0f ? -kInfinity : std::log(p) + whole.lse);
    }
  }
  // The state of online softmax after each tile.
  const Inputs plain = spec.paging.rows > 0 ? gather_pages(spec, inputs) : inputs;
  const float* v = plain.v.data() + head_of_keys(spec, row.batch, row.head) * spec.seqlen_k * d;
  std::vector<double> o(d);
  double weight = 0;
  float maximum = -kInfinity;
  for (int tile = 0; tile < tiles; ++tile) {
    const float before = maximum;
    for (int key = tile * kInspectedKeys; key < end_of(spec, tile); ++key) {
      if (found.p[key] == 0.0f) continue;
      maximum = std::isnan(found.scores[key]) ? found.scores[key] : std::max(maximum, found.scores[key]);
      weight += found.p[key];
      for (int c = 0; c < d; ++c) o[c] += double(found.p[key]) * v[int64_t(key) * d + c];
    }
    found.maximum.push_back(maximum);
    found.correction.push_back(before == maximum ? 1.0f : std::exp(before - maximum));
    found.sum.push_back(weight == 0 ? 0.0f : float(weight * std::exp(double(whole.lse) - maximum)));
    for (int c = 0; c < d; ++c) found.o.push_back(weight == 0 ? 0.0f : float(o[c] / weight));
  }
  return found;
}

/// Returns the first tile that, together with all earlier ones, makes the log-sum-exp NaN; keys after it are
/// set to 0.
int first_nan_by_keys(const Spec& spec, const Inputs& inputs, const RowOf& row, const Ask& ask) {
  for (int tile = 0; tile < tiles_of(spec); ++tile) {
    const Answer answer = ask(changed(spec, inputs, TensorId::k, row, false, [&](float* k) {
      std::fill(k + int64_t(end_of(spec, tile)) * spec.head_dim, k + int64_t(spec.seqlen_k) * spec.head_dim,
                0.0f);
    }));
    if (std::isnan(answer.lse)) return tile;
  }
  return tiles_of(spec) - 1;
}

std::string text(double value) { return concat(std::setprecision(4), value); }

/// Returns a range such as "0 to 63".
std::string keys_of(const Spec& spec, int tile) {
  return concat(tile * kInspectedKeys, " to ", end_of(spec, tile) - 1);
}

}  // namespace

Inspection inspect(const Chapter& chapter, const Spec& spec, const Inputs& inputs, const RowOf& row,
                   int step) {
  if (chapter.step(step).operation == Operation::backward)
    throw InputError(
        "--inspect shows a row of a forward pass, but this step computes gradients: choose a step that "
        "computes O");
  if (spec.is_latent())
    throw InputError("--inspect replaces V, which is a part of K if keys are latent: inspect another step");
  const int d = spec.head_dim;
  const int64_t number = (int64_t(row.batch) * spec.heads + row.head) * spec.seqlen_q + row.query;
  const Ask step_asked = [&](const Inputs& asked) {
    const Outputs outputs = run_once(chapter, spec, asked, step);
    return Answer{
        {outputs.o.begin() + number * d, outputs.o.begin() + (number + 1) * d}, outputs.lse[number], 0};
  };
  const Ask oracle_asked = [&](const Inputs& asked) {
    const Reference reference = make_reference(spec, asked, {number});
    return Answer{{reference.o.begin(), reference.o.end()}, float(reference.lse[0]), reference.o_bound[0]};
  };

  Inspection found;
  std::vector<double> unused;
  found.step = trace(spec, inputs, row, step_asked, unused);
  found.oracle = trace(spec, inputs, row, oracle_asked, found.bound);
  // A lost key makes the sum too small and every P too large: this comparison cancels that factor.
  const double factor = std::exp(double(found.step.lse) - found.oracle.lse);
  for (int tile = 0; tile < tiles_of(spec); ++tile) {
    double worst = 0;
    for (int key = tile * kInspectedKeys; key < end_of(spec, tile); ++key) {
      const double error = std::abs(found.step.p[key] * factor - found.oracle.p[key]);
      if (!(error <= worst)) worst = error;  // keeps NaN
      if (std::isnan(worst)) break;
    }
    found.error.push_back(worst);
    if (found.first_wrong < 0 && !(worst <= found.bound[tile])) found.first_wrong = tile;
    const auto o = found.step.o.begin() + int64_t(tile) * d;
    if (found.first_nan < 0 && std::any_of(o, o + d, [](float x) { return std::isnan(x); }))
      found.first_nan = tile;
  }
  if (std::isnan(found.step.lse)) found.first_nan = first_nan_by_keys(spec, inputs, row, step_asked);
  return found;
}

void print_inspection(std::ostream& out, const Spec& spec, const RowOf& row, const Inspection& found) {
  out << "batch " << row.batch << ", head " << row.head << ", query " << row.query << ", in tiles of "
      << kInspectedKeys << " keys; above the step, below the oracle\n";
  Table table("lrrrrrrr",
              {"keys", "largest s", "maximum", "correction", "sum", "sum of P", "O[0]", "|P - oracle|"});
  const auto add = [&](int tile, const InspectedRow& side, const std::string& name, const std::string& last) {
    const int begin = tile * kInspectedKeys, end = end_of(spec, tile);
    double weight = 0;
    for (int key = begin; key < end; ++key) weight += side.p[key];
    table.add({name, text(*std::max_element(side.scores.begin() + begin, side.scores.begin() + end)),
               text(side.maximum[tile]), text(side.correction[tile]), text(side.sum[tile]), text(weight),
               text(side.o[std::size_t(tile) * spec.head_dim]), last});
  };
  for (int tile = 0; tile < tiles_of(spec); ++tile) {
    add(tile, found.step, keys_of(spec, tile), text(found.error[tile]));
    add(tile, found.oracle, "", "at most " + text(found.bound[tile]));
  }
  table.print(out);
  out << "largest weights, key: score, P (oracle's)\n";
  for (int tile = 0; tile < tiles_of(spec); ++tile) {
    std::vector<int> keys;
    for (int key = tile * kInspectedKeys; key < end_of(spec, tile); ++key)
      if (found.oracle.p[key] > 0 || found.step.p[key] != 0) keys.push_back(key);
    if (spec.seqlen_k > kPrintedKeys && int(keys.size()) > kLargest) {
      std::ranges::partial_sort(keys, keys.begin() + kLargest, std::greater{},
                                [&](int key) { return found.oracle.p[key]; });
      keys.resize(kLargest);
    }
    for (const int key : keys)
      out << "  " << key << ": " << text(found.step.scores[key]) << " (" << text(found.oracle.scores[key])
          << "), " << text(found.step.p[key]) << " (" << text(found.oracle.p[key]) << ")\n";
  }
  out << "log-sum-exp " << text(found.step.lse) << " (" << text(found.oracle.lse) << "), O[0] "
      << text(found.step.answer[0]) << " (" << text(found.oracle.answer[0]) << ")\n";
  if (found.first_nan >= 0) out << "NaN first appears with keys " << keys_of(spec, found.first_nan) << "\n";
  if (found.first_wrong >= 0)
    out << "P first exceeds its bound in keys " << keys_of(spec, found.first_wrong) << "\n";
  if (found.ok()) out << "every tile is within its bound\n";
}

void save_inspection(const std::string& folder, const Spec& spec, const Inspection& found) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw InputError("--inspect-to is '", folder, "', which cannot be created: ", error.message());
  const int64_t tiles = tiles_of(spec);
  const auto save = [&](const std::string& name, std::vector<float> InspectedRow::*part,
                        std::vector<int64_t> dims) {
    std::vector<float> both = found.step.*part;
    both.insert(both.end(), (found.oracle.*part).begin(), (found.oracle.*part).end());
    dims.insert(dims.begin(), 2);
    write_whole_file(std::filesystem::path(folder) / (name + ".npy"), npy_bytes(dims, both));
  };
  save("scores", &InspectedRow::scores, {spec.seqlen_k});
  save("p", &InspectedRow::p, {spec.seqlen_k});
  save("maximum", &InspectedRow::maximum, {tiles});
  save("sum", &InspectedRow::sum, {tiles});
  save("correction", &InspectedRow::correction, {tiles});
  save("o", &InspectedRow::o, {tiles, spec.head_dim});
}

bool inspect_steps(std::ostream& out, const Options& options, const Chapter& chapter) {
  const Spec& spec = options.spec;
  const Inputs inputs =
      options.inputs ? *options.inputs : make_inputs(spec, InputKind::drifting, options.seed);
  bool ok = true;
  for (const int step : options.steps) {
    out << (step == options.steps.front() ? "" : "\n") << "step " << step << " " << chapter.step(step).name
        << "\n";
    if (const std::string reason = chapter.refusal(step, spec); !reason.empty()) {
      if (!options.every_step) throw InputError(reason);
      out << reason << "\n";
      continue;
    }
    const Inspection found = inspect(chapter, spec, inputs, *options.inspected, step);
    print_inspection(out, spec, *options.inspected, found);
    if (!options.inspect_to.empty()) {
      const bool several = options.steps.size() > 1;
      save_inspection(options.inspect_to + (several ? concat("/", chapter.step(step).slug) : ""), spec,
                      found);
    }
    ok = ok && found.ok();
  }
  return ok;
}

}  // namespace flashbook
