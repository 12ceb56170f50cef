#include "common/app/report.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "common/app/table.h"
#include "common/attention/error.h"
#include "common/attention/whole_file.h"

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

std::string error_text(const StepReport& step) {
  return step.checked ? format_error(step.oracle.o.max_error) : "-";
}

std::string verdict_text(const StepReport& step) {
  return !step.ok() ? "WRONG" : step.checked ? "right" : "unchecked";
}

void print_failure(std::ostream& out, int step, const char* tensor, const char* against,
                   const Verdict& verdict) {
  if (verdict.ok) return;
  out << "WRONG: step " << step << ", " << tensor << " against " << against << ": error "
      << format_error(verdict.max_error) << ", bound " << format_error(verdict.bound) << "; worst at "
      << verdict.worst << "\n";
}

json to_json(const Verdict& verdict) {
  // JSON has no NaN or infinity: nlohmann writes null, and read_json takes null for NaN.
  return {{"ok", verdict.ok},
          {"max_error", verdict.max_error},
          {"bound", verdict.bound},
          {"relative_rms", verdict.relative_rms},
          {"worst", verdict.worst}};
}

json to_json(const CheckResult& result) { return {{"o", to_json(result.o)}, {"lse", to_json(result.lse)}}; }

Verdict verdict_from(const json& from) {
  const auto number = [&](const char* key) {
    return from.at(key).is_null() ? std::nan("") : from.at(key).get<double>();
  };
  return {from.at("ok").get<bool>(), number("max_error"), number("bound"), number("relative_rms"),
          from.at("worst").get<std::string>()};
}

CheckResult check_from(const json& from) {
  return {verdict_from(from.at("o")), verdict_from(from.at("lse"))};
}

}  // namespace

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
               step.checked ? format_error(step.oracle.o.bound) : "-",
               step.checked ? format_error(step.oracle.o.relative_rms) : "-", verdict_text(step)});
  }
  table.print(out);

  for (const StepReport& step : report.steps) {
    if (!step.why_not.empty()) out << "step " << step.step << " cannot run: " << step.why_not << "\n";
    if (step.checked) {
      print_failure(out, step.step, "O", "the oracle", step.oracle.o);
      print_failure(out, step.step, "log-sum-exp", "the oracle", step.oracle.lse);
    }
    if (step.compared) {
      print_failure(out, step.step, "O", "the chapter before", step.before.o);
      print_failure(out, step.step, "log-sum-exp", "the chapter before", step.before.lse);
    }
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
      if (step.checked) entry["oracle"] = to_json(step.oracle);
      if (step.compared) entry["before"] = to_json(step.before);
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
      step.checked = from.contains("oracle");
      if (step.checked) step.oracle = check_from(from.at("oracle"));
      step.compared = from.contains("before");
      if (step.compared) step.before = check_from(from.at("before"));
      report.steps.push_back(std::move(step));
    }
    return report;
  } catch (const json::exception&) {
    throw InputError(file.string() + " is not a report: write one with a chapter's program and --json");
  }
}

}  // namespace flashbook
