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

/// All but its steps.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, chapter, name, title, machine, on_gpu, simulated, shape,
                                   checked_rows, before)

namespace {

using nlohmann::json;

/// What is a number in JSON. It has no NaN or infinity: nlohmann writes null, and read_json takes null for
/// NaN.
constexpr std::pair<const char*, double Verdict::*> kOfVerdict[] = {
    {"max_error", &Verdict::max_error}, {"bound", &Verdict::bound}, {"relative_rms", &Verdict::relative_rms}};
constexpr std::pair<const char*, double StepReport::*> kOfStep[] = {
    {"flops", &StepReport::flops},
    {"memory_bytes", &StepReport::memory_bytes},
    {"requested_bytes", &StepReport::requested_bytes},
    {"workspace_bytes", &StepReport::workspace_bytes},
    {"seconds", &StepReport::seconds}};

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

/// Time, speed, FLOPs and bytes: columns of both tables.
std::vector<std::string> cost_texts(const Report& report, const StepReport& step) {
  const bool timed = step.seconds > 0;
  return {timed ? format_seconds(step.seconds) : "-",
          report.on_gpu && timed ? three_digits(step.flops / step.seconds / 1e12) : "-",
          format_amount(step.flops, "FLOP"),
          step.memory_bytes > 0 ? format_amount(step.memory_bytes, "B") : "-"};
}

/// Of the operation's first output, O or dQ, which stands for them all where there is room for one.
std::string verdict_number(const StepReport& step, double Verdict::*number) {
  return step.oracle.empty() ? "-" : format_error(step.oracle.front().verdict.*number);
}

/// A row with its last column, which says how the step did; "-" before it where nothing is known.
std::vector<std::string> finished(std::vector<std::string> row, const StepReport& step, std::size_t columns) {
  row.resize(columns, "-");
  row.push_back(!step.why_not.empty() ? "cannot run"
                : !step.ok()          ? "WRONG"
                : step.oracle.empty() ? "unchecked"
                                      : "right");
  return row;
}

bool all_ok(const std::vector<TensorVerdict>& verdicts) {
  return std::ranges::all_of(verdicts, [](const TensorVerdict& tensor) { return tensor.verdict.ok; });
}

std::string describe_wrong(const TensorVerdict& tensor, const std::string& against) {
  const Verdict& verdict = tensor.verdict;
  return concat(title_of(tensor.tensor), " against ", against, ": error ", format_error(verdict.max_error),
                ", bound ", format_error(verdict.bound), "; worst at ", verdict.worst);
}

void print_failures(std::ostream& out, int step, const std::vector<TensorVerdict>& verdicts,
                    const std::string& against) {
  for (const TensorVerdict& tensor : verdicts)
    if (!tensor.verdict.ok) out << "WRONG: step " << step << ", " << describe_wrong(tensor, against) << "\n";
}

json to_json(const std::vector<TensorVerdict>& verdicts) {
  json tensors;
  for (const auto& [tensor, verdict] : verdicts) {
    json& to = tensors[std::string(name_of(tensor))];
    to = {{"ok", verdict.ok}, {"worst", verdict.worst}};
    for (const auto& [name, number] : kOfVerdict) to[name] = verdict.*number;
  }
  return tensors;
}

Verdict verdict_from(const json& from) {
  Verdict verdict{.ok = from.at("ok").get<bool>(), .worst = from.at("worst").get<std::string>()};
  for (const auto& [name, number] : kOfVerdict)
    verdict.*number = from.at(name).is_null() ? std::nan("") : from.at(name).get<double>();
  return verdict;
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
    std::vector<std::string> row = {std::to_string(step.step), step.name};
    if (step.why_not.empty()) {
      std::ranges::move(cost_texts(report, step), std::back_inserter(row));
      row.push_back(step.workspace_bytes > 0 ? format_amount(step.workspace_bytes, "B") : "-");
      for (const auto& [_, number] : kOfVerdict) row.push_back(verdict_number(step, number));
    }
    table.add(finished(std::move(row), step, 10));
  }
  table.print(out);

  for (const StepReport& step : report.steps) {
    if (!step.shape.empty()) out << "step " << step.step << " has a shape of its own: " << step.shape << "\n";
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
                                      report.machine, step.shape.empty() ? report.shape : step.shape};
      if (step.why_not.empty()) {
        std::ranges::move(cost_texts(report, step), std::back_inserter(row));
        row.push_back(verdict_number(step, &Verdict::max_error));
      }
      table.add(finished(std::move(row), step, 10));
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
    if (!step.shape.empty()) entry["shape"] = step.shape;
    if (!step.why_not.empty()) {
      entry["why_not"] = step.why_not;
    } else {
      for (const auto& [name, number] : kOfStep) entry[name] = step.*number;
      entry["reps"] = step.reps;
      if (!step.oracle.empty()) entry["oracle"] = to_json(step.oracle);
      if (!step.before.empty()) entry["before"] = to_json(step.before);
    }
    steps.push_back(std::move(entry));
  }
  json whole = report;
  whole.update({{"ok", report.ok()}, {"steps", std::move(steps)}});
  write_whole_file(file, whole.dump(2) + "\n");
}

Report read_json(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream)
    throw InputError(file.string(), " cannot be read: run the chapter's program with --json first");
  try {
    const json whole = json::parse(stream);
    Report report = whole.get<Report>();
    for (const json& from : whole.at("steps")) {
      StepReport step;
      from.at("step").get_to(step.step);
      from.at("name").get_to(step.name);
      step.shape = from.value("shape", "");
      step.why_not = from.value("why_not", "");
      for (const auto& [name, number] : kOfStep) step.*number = from.value(name, 0.0);
      step.reps = from.value("reps", 0);
      if (from.contains("oracle")) step.oracle = verdicts_from(from.at("oracle"));
      if (from.contains("before")) step.before = verdicts_from(from.at("before"));
      report.steps.push_back(std::move(step));
    }
    return report;
  } catch (
      const std::exception&) {  // of the parser, or of the stream, which opens a folder but cannot read it
    throw InputError(file.string(), " is not a report: write one with a chapter's program and --json");
  }
}

}  // namespace flashbook
