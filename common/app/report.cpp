#include "common/app/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "common/app/table.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"

namespace flashbook {
namespace {

using nlohmann::json;

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// Three significant digits, as people write them: 1.23, 12.3, 123.
std::string three_digits(double value) {
  return format(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

std::string format_error(double error) { return format("%.1e", error); }

std::string teraflops(const Report& report, const StepReport& step) {
  return report.on_gpu && step.seconds > 0 ? three_digits(step.flops / step.seconds / 1e12) : "-";
}

std::string memory_text(const StepReport& step) {
  return step.memory_bytes > 0 ? format_amount(step.memory_bytes, "B") : "-";
}

std::string time_text(const StepReport& step) {
  return step.seconds > 0 ? format_seconds(step.seconds) : "-";
}

/// Of the operation's first output, O or dQ, which stands for them all where there is room for one.
std::string verdict_number(const StepReport& step, double Verdict::*number) {
  return step.oracle.empty() ? "-" : format_error(step.oracle.front().verdict.*number);
}

std::string error_text(const StepReport& step) { return verdict_number(step, &Verdict::max_error); }

std::string verdict_text(const StepReport& step) {
  return !step.ok() ? "WRONG" : step.oracle.empty() ? "unchecked" : "right";
}

bool all_ok(const std::vector<TensorVerdict>& verdicts) {
  return std::ranges::all_of(verdicts, [](const TensorVerdict& tensor) { return tensor.verdict.ok; });
}

std::string describe_wrong(const TensorVerdict& tensor, const std::string& against) {
  const Verdict& verdict = tensor.verdict;
  return std::string(title_of(tensor.tensor)) + " against " + against + ": error " +
         format_error(verdict.max_error) + ", bound " + format_error(verdict.bound) + "; worst at " +
         verdict.worst;
}

void print_failures(std::ostream& out, int step, const std::vector<TensorVerdict>& verdicts,
                    const std::string& against) {
  for (const TensorVerdict& tensor : verdicts)
    if (!tensor.verdict.ok) out << "WRONG: step " << step << ", " << describe_wrong(tensor, against) << "\n";
}

json to_json(const Verdict& verdict) {
  // JSON has no NaN or infinity: nlohmann writes null, and read_json takes null for NaN.
  return {{"ok", verdict.ok},
          {"max_error", verdict.max_error},
          {"bound", verdict.bound},
          {"relative_rms", verdict.relative_rms},
          {"worst", verdict.worst}};
}

json to_json(const std::vector<TensorVerdict>& verdicts) {
  json tensors;
  for (const TensorVerdict& tensor : verdicts)
    tensors[std::string(name_of(tensor.tensor))] = to_json(tensor.verdict);
  return tensors;
}

Verdict verdict_from(const json& from) {
  const auto number = [&](const char* key) {
    return from.at(key).is_null() ? std::nan("") : from.at(key).get<double>();
  };
  return {from.at("ok").get<bool>(), number("max_error"), number("bound"), number("relative_rms"),
          from.at("worst").get<std::string>()};
}

/// In the order of the operations' lists, O and dQ first.
std::vector<TensorVerdict> verdicts_from(const json& from) {
  std::vector<TensorVerdict> verdicts;
  for (Operation operation : {Operation::forward, Operation::backward})
    for (const TensorSpec& tensor : tensors_of(operation))
      if (const auto found = from.find(tensor.name); tensor.role == Role::output && found != from.end())
        verdicts.push_back({tensor.id, verdict_from(*found)});
  return verdicts;
}

}  // namespace

const char* title_of(TensorId tensor) {
  switch (tensor) {
    case TensorId::q:
      return "Q";
    case TensorId::k:
      return "K";
    case TensorId::v:
      return "V";
    case TensorId::o:
      return "O";
    case TensorId::lse:
      return "log-sum-exp";
    case TensorId::d_o:
      return "dO";
    case TensorId::dq:
      return "dQ";
    case TensorId::dk:
      return "dK";
    case TensorId::dv:
      return "dV";
  }
  return "?";
}

std::vector<TensorVerdict> by_tensor(const CheckResult& result) {
  return {{TensorId::o, result.o}, {TensorId::lse, result.lse}};
}

std::string describe_failure(const std::vector<TensorVerdict>& verdicts, const std::string& against) {
  for (const TensorVerdict& tensor : verdicts)
    if (!tensor.verdict.ok) return describe_wrong(tensor, against);
  return "";
}

bool StepReport::ok() const { return all_ok(oracle) && all_ok(before); }

bool Report::ok() const {
  for (const StepReport& step : steps)
    if (step.why_not.empty() && !step.ok()) return false;
  return true;
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 1) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds) + " s";
}

std::string format_amount(double value, const std::string& unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int i = 0;
  for (; value >= 999.5 && i < 6; ++i) value /= 1000;
  return (i == 0 ? format("%.0f", value) : three_digits(value)) + " " + prefixes[i] + unit;
}

void print_report(std::ostream& out, const Report& report) {
  out << "Chapter " << report.chapter << ": " << report.title << "\n";
  out << "machine  " << report.machine
      << (report.simulated ? " (times are the simulator's, not a GPU's)" : "") << "\n";
  out << "shape    " << report.shape << "\n";
  out << "checked  " << report.checked_rows << " against the FP64 oracle";
  if (!report.before.empty()) out << "; " << report.before;
  out << "\n\n";

  Table table("rlrrrrrrrrl", {"step", "", "time", "TFLOP/s", "FLOPs", "memory", "workspace", "worst error",
                              "bound", "rel. RMS", ""});
  for (const StepReport& step : report.steps) {
    if (!step.why_not.empty()) {
      table.add({std::to_string(step.step), step.name, "-", "-", "-", "-", "-", "-", "-", "-", "cannot run"});
      continue;
    }
    table.add({std::to_string(step.step), step.name, time_text(step), teraflops(report, step),
               format_amount(step.flops, "FLOP"), memory_text(step),
               step.workspace_bytes > 0 ? format_amount(step.workspace_bytes, "B") : "-", error_text(step),
               verdict_number(step, &Verdict::bound), verdict_number(step, &Verdict::relative_rms),
               verdict_text(step)});
  }
  table.print(out);

  for (const StepReport& step : report.steps) {
    if (!step.why_not.empty()) out << "step " << step.step << " cannot run: " << step.why_not << "\n";
    print_failures(out, step.step, step.oracle, "the oracle");
    print_failures(out, step.step, step.before, "the chapter before");
  }
}

void print_ladder(std::ostream& out, const std::vector<Report>& reports) {
  bool simulated = false;
  Table table("rrlllrrrrrl", {"chapter", "step", "", "machine", "shape", "time", "TFLOP/s", "FLOPs", "memory",
                              "worst error", ""});
  for (const Report& report : reports)
    for (const StepReport& step : report.steps) {
      simulated = simulated || report.simulated;
      std::vector<std::string> row = {std::to_string(report.chapter), std::to_string(step.step), step.name,
                                      report.machine, report.shape};
      if (step.why_not.empty())
        row.insert(row.end(), {time_text(step), teraflops(report, step), format_amount(step.flops, "FLOP"),
                               memory_text(step), error_text(step), verdict_text(step)});
      else
        row.insert(row.end(), {"-", "-", "-", "-", "-", "cannot run"});
      table.add(std::move(row));
    }
  table.print(out);
  out << "\nFLOPs and memory (bytes to and from device memory) are by the cost model; errors are against "
         "FP64.\n";
  if (simulated) out << "Times in the simulator say nothing about a GPU.\n";
}

void write_json(const std::filesystem::path& file, const Report& report) {
  json steps = json::array();
  for (const StepReport& step : report.steps) {
    json entry = {{"step", step.step}, {"name", step.name}};
    if (!step.why_not.empty()) {
      entry["why_not"] = step.why_not;
    } else {
      entry.update({{"flops", step.flops},
                    {"memory_bytes", step.memory_bytes},
                    {"requested_bytes", step.requested_bytes},
                    {"workspace_bytes", step.workspace_bytes},
                    {"seconds", step.seconds},
                    {"reps", step.reps}});
      if (!step.oracle.empty()) entry["oracle"] = to_json(step.oracle);
      if (!step.before.empty()) entry["before"] = to_json(step.before);
    }
    steps.push_back(std::move(entry));
  }
  const json whole = {{"chapter", report.chapter}, {"name", report.name},
                      {"title", report.title},     {"machine", report.machine},
                      {"on_gpu", report.on_gpu},   {"simulated", report.simulated},
                      {"shape", report.shape},     {"checked_rows", report.checked_rows},
                      {"before", report.before},   {"ok", report.ok()},
                      {"steps", std::move(steps)}};
  write_whole_file(file, whole.dump(2) + "\n");
}

Report read_json(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream)
    throw InputError(file.string() + " cannot be read: run the chapter's program with --json first");
  try {
    const json whole = json::parse(stream);
    Report report;
    whole.at("chapter").get_to(report.chapter);
    whole.at("name").get_to(report.name);
    whole.at("title").get_to(report.title);
    whole.at("machine").get_to(report.machine);
    whole.at("on_gpu").get_to(report.on_gpu);
    whole.at("simulated").get_to(report.simulated);
    whole.at("shape").get_to(report.shape);
    whole.at("checked_rows").get_to(report.checked_rows);
    whole.at("before").get_to(report.before);
    for (const json& from : whole.at("steps")) {
      StepReport step;
      from.at("step").get_to(step.step);
      from.at("name").get_to(step.name);
      step.why_not = from.value("why_not", "");
      step.flops = from.value("flops", 0.0);
      step.memory_bytes = from.value("memory_bytes", 0.0);
      step.requested_bytes = from.value("requested_bytes", 0.0);
      step.workspace_bytes = from.value("workspace_bytes", 0.0);
      step.seconds = from.value("seconds", 0.0);
      step.reps = from.value("reps", 0);
      if (from.contains("oracle")) step.oracle = verdicts_from(from.at("oracle"));
      if (from.contains("before")) step.before = verdicts_from(from.at("before"));
      report.steps.push_back(std::move(step));
    }
    return report;
  } catch (
      const std::exception&) {  // of the parser, or of the stream, which opens a folder but cannot read it
    throw InputError(file.string() + " is not a report: write one with a chapter's program and --json");
  }
}

}  // namespace flashbook
