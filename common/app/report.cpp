#include "common/app/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "common/app/committed.h"
#include "common/app/table.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"

namespace flashbook {

/// All fields except the steps.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, chapter, name, title, machine, on_gpu, simulated, shape,
                                   checked_rows, before)

namespace {

using nlohmann::json;

/// Members written to JSON, which has no NaN or infinity: nlohmann writes null, and read_json reads NaN.
constexpr std::pair<const char*, double Verdict::*> kOfVerdict[] = {
    {"max_error", &Verdict::max_error}, {"bound", &Verdict::bound}, {"relative_rms", &Verdict::relative_rms}};
constexpr std::pair<const char*, double StepReport::*> kOfStep[] = {
    {"flops", &StepReport::flops},
    {"memory_bytes", &StepReport::memory_bytes},
    {"requested_bytes", &StepReport::requested_bytes},
    {"workspace_bytes", &StepReport::workspace_bytes},
    {"book_memory_bytes", &StepReport::book_memory_bytes},
    {"seconds", &StepReport::seconds}};

std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// Returns a number with three significant digits: 1.23, 12.3, 123.
std::string three_digits(double value) {
  return format(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

std::string format_error(double error) { return format("%.1e", error); }

std::string format_bytes(double bytes) { return bytes > 0 ? format_amount(bytes, "B") : "-"; }

/// Wraps text; continuation lines are indented by the label's width.
void print_wrapped(std::ostream& out, const std::string& label, std::string text) {
  const std::size_t width = kTextColumns - label.size();
  std::string before = label;
  while (text.size() > width) {
    std::size_t end = text.rfind(' ', width);
    if (end == std::string::npos || end == 0) end = text.find(' ', width);
    if (end == std::string::npos) break;
    out << before << text.substr(0, end) << "\n";
    text.erase(0, end + 1);
    before.assign(label.size(), ' ');
  }
  out << before << text << "\n";
}

/// The speed of a step; 0 means unknown.
struct Speed {
  double seconds = 0, flops_per_second = 0, factor = 0;  ///< speedup over the previous step
};

/// Formats time, TFLOP/s and factor.
std::vector<std::string> speed_texts(const Speed& speed) {
  return {speed.seconds > 0 ? format_seconds(speed.seconds) : "-",
          speed.flops_per_second > 0 ? three_digits(speed.flops_per_second / 1e12) : "-",
          speed.factor > 0 ? three_digits(speed.factor) + "x" : "-"};
}

std::string shape_of(const Report& report, const StepReport& step) {
  return step.shape.empty() ? report.shape : step.shape;
}

/// The speeds of steps: measured here or, if only the simulator ran, on the book's GPU.
class Speeds {
 public:
  explicit Speeds(const Committed& committed) : committed_(committed) {}

  /// Steps must be passed in order.
  Speed of(const Report& report, const StepReport& step) {
    if (!step.why_not.empty()) return {};
    if (report.simulated) {
      const CommittedRung* rung = committed_.find(report.chapter, step.slug);
      if (rung == nullptr) return {};
      const CommittedShape& shape = committed_.shape_of(*rung);
      note(report.chapter, step.step, concat(shape.what, shape.described, "; ", shape.origin));
      return {rung->seconds, rung->flops_per_second, rung->factor};
    }
    if (step.seconds <= 0) return {};
    const std::string where = concat("measured here, ", report.machine, ": ", shape_of(report, step));
    note(report.chapter, step.step, where);
    double& before = before_[{where, step.flops}];  // a gradient has more FLOPs for the same shape
    const Speed speed{step.seconds, report.on_gpu ? step.flops / step.seconds : 0,
                      before > 0 ? before / step.seconds : 0};
    before = step.seconds;
    return speed;
  }

  /// Returns the shapes for which these times were measured, one line per shape: "chapters 1, 3: batch 4,
  /// ...". A step that ran a different shape from its chapter has its own number.
  std::vector<std::string> lines() const {
    std::vector<std::string> texts;
    for (const Line& line : lines_) {
      std::string label;
      for (const auto& [what, names] : {std::pair("chapter", &line.chapters), std::pair("step", &line.steps)})
        if (!names->empty())
          label += concat(label.empty() ? "" : ", ", what, names->find(',') == std::string::npos ? " " : "s ",
                          *names);
      texts.push_back(concat(label, ": ", line.text));
    }
    return texts;
  }

 private:
  struct Line {
    std::string text, chapters, steps;
  };

  void note(int chapter, int step, const std::string& text) {
    auto line = std::ranges::find(lines_, text, &Line::text);
    if (line == lines_.end()) line = lines_.insert(line, {text, "", ""});
    const auto [first, is_new] = first_.try_emplace(chapter, text);
    if (!is_new && first->second == text) return;
    std::string& names = is_new ? line->chapters : line->steps;
    names += concat(names.empty() ? "" : ", ", chapter, is_new ? "" : "." + std::to_string(step));
  }

  const Committed& committed_;
  std::map<std::pair<std::string, double>, double> before_;  ///< in seconds
  std::map<int, std::string> first_;                         ///< first line of each chapter
  std::vector<Line> lines_;
};

std::string outcome(const StepReport& step) {
  return !step.why_not.empty() ? "not run"
         : !step.ok()          ? "WRONG"
         : step.oracle.empty() ? "unchecked"
                               : "right";
}

/// Returns the worst error of the operation's first output, O or dQ, which represents all outputs.
std::string error_text(const StepReport& step) {
  return step.oracle.empty() ? "-" : format_error(step.oracle.front().verdict.max_error);
}

/// Returns a last column with the time that other columns lack: the simulator's or, on a GPU, the book's time
/// for the same shape.
std::string other_time(const Report& report, const StepReport& step, const Committed& committed) {
  if (report.simulated) return step.seconds > 0 ? format_seconds(step.seconds) : "-";
  const CommittedRung* rung = report.on_gpu ? committed.find(report.chapter, step.slug) : nullptr;
  const bool is_same = rung != nullptr && committed.shape_of(*rung).described == shape_of(report, step);
  return is_same ? format_seconds(rung->seconds) : "-";
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

/// Returns the verdicts in the order of the operations' lists, O and dQ first.
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

void print_report(std::ostream& out, const Report& report, const Committed& committed) {
  const std::string card(committed.card);
  Speeds speeds(committed);
  Table table("rlrrrrlrrrr",
              {"step", "", "memory", "L2", "workspace", "error", "", report.simulated ? card : "time",
               "TFLOP/s", "factor", report.simulated ? "simulated" : card});
  for (const StepReport& step : report.steps) {
    std::vector<std::string> row = {std::to_string(step.step),
                                    step.name,
                                    format_bytes(step.memory_bytes),
                                    format_bytes(step.requested_bytes),
                                    format_bytes(step.workspace_bytes),
                                    error_text(step),
                                    outcome(step)};
    std::ranges::move(speed_texts(speeds.of(report, step)), std::back_inserter(row));
    row.push_back(other_time(report, step, committed));
    table.add(std::move(row));
  }
  out << "Chapter " << report.chapter << ": " << report.title << "\n";
  print_wrapped(out, "machine  ", report.machine);
  print_wrapped(out, "shape    ", report.shape);
  print_wrapped(out, "checked  ",
                concat(report.checked_rows, " against the FP64 oracle", report.before.empty() ? "" : "; ",
                       report.before));
  if (report.simulated && !speeds.lines().empty()) {
    print_wrapped(out, card + std::string(9 - std::min<std::size_t>(card.size(), 8), ' '),
                  concat("times from ", committed.folder, "; factor: over the previous step"));
    for (const std::string& line : speeds.lines()) print_wrapped(out, std::string(9, ' '), line);
  }
  out << "\n";

  table.drop_empty_columns();
  table.print(out);

  for (const StepReport& step : report.steps) {
    if (!step.shape.empty())
      print_wrapped(out, concat("step ", step.step, " uses a different shape: "), step.shape);
    if (!step.why_not.empty()) out << "step " << step.step << " cannot run: " << step.why_not << "\n";
    print_failures(out, step.step, step.oracle, "the oracle");
    print_failures(out, step.step, step.before, "the previous chapter");
    if (!step.suspects.empty()) out << "Allowed, but rarely intended:" << step.suspects << "\n";
  }
}

void print_ladder(std::ostream& out, const std::vector<Report>& reports, const Committed& committed) {
  Speeds speeds(committed);
  std::map<std::string, int> outcomes;
  Table table("rlrrrrrrl", {"step", "", "memory", "workspace", "time", "TFLOP/s", "factor",
                            std::string(committed.card), ""});
  for (const Report& report : reports)
    for (const StepReport& step : report.steps) {
      ++outcomes[outcome(step)];
      const CommittedRung* rung = committed.find(report.chapter, step.slug);
      double memory = step.memory_bytes, workspace = step.workspace_bytes;
      if (report.simulated) {  // both times and bytes are those of the book's shape
        memory = rung == nullptr ? 0 : rung->memory_bytes;
        workspace = rung == nullptr ? 0 : rung->workspace_bytes;
        if (memory == 0 && rung != nullptr &&
            step.book_shape.starts_with(committed.shape_of(*rung).described))
          memory = step.book_memory_bytes;
      }
      std::vector<std::string> row = {concat(report.chapter, ".", step.step), step.name, format_bytes(memory),
                                      format_bytes(workspace)};
      std::ranges::move(speed_texts(speeds.of(report, step)), std::back_inserter(row));
      row.push_back(report.simulated ? "-" : other_time(report, step, committed));
      row.push_back(outcome(step) == "right" ? "-" : outcome(step));
      table.add(std::move(row));
    }
  if (std::ranges::any_of(reports, &Report::simulated) && !speeds.lines().empty())
    print_wrapped(
        out, "",
        concat("The ladder: ", committed.card, " times from ", committed.folder, ", in the shapes below\n"));
  table.drop_empty_columns();
  table.print(out);
  out << "\n";
  std::string checked;
  for (const auto& [how, count] : outcomes) checked += concat(checked.empty() ? "" : ", ", count, " ", how);
  print_wrapped(out, "steps    ", checked + ", against FP64");
  print_wrapped(out, "memory   ", "bytes to and from device memory, by the cost model");
  print_wrapped(out, "factor   ", "times as fast as the previous step, at the same sizes");
  print_wrapped(out, "-        ", "none, not modelled, or not measured yet");
  std::string label = "shape    ";
  for (const std::string& line : speeds.lines()) {
    print_wrapped(out, label, line);
    label.assign(label.size(), ' ');
  }
}

void write_json(const std::filesystem::path& file, const Report& report) {
  json steps = json::array();
  for (const StepReport& step : report.steps) {
    json entry = {{"step", step.step}, {"slug", step.slug}, {"name", step.name}};
    if (!step.shape.empty()) entry["shape"] = step.shape;
    if (!step.book_shape.empty()) entry["book_shape"] = step.book_shape;
    if (!step.why_not.empty()) {
      entry["why_not"] = step.why_not;
    } else {
      for (const auto& [name, number] : kOfStep) entry[name] = step.*number;
      entry["reps"] = step.reps;
      if (!step.oracle.empty()) entry["oracle"] = to_json(step.oracle);
      if (!step.suspects.empty()) entry["suspects"] = step.suspects;
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
      from.at("slug").get_to(step.slug);
      from.at("name").get_to(step.name);
      step.shape = from.value("shape", "");
      step.book_shape = from.value("book_shape", "");
      step.why_not = from.value("why_not", "");
      for (const auto& [name, number] : kOfStep) step.*number = from.value(name, 0.0);
      step.reps = from.value("reps", 0);
      step.suspects = from.value("suspects", "");
      if (from.contains("oracle")) step.oracle = verdicts_from(from.at("oracle"));
      if (from.contains("before")) step.before = verdicts_from(from.at("before"));
      report.steps.push_back(std::move(step));
    }
    return report;
  } catch (const std::exception&) {  // thrown by the parser, or by a stream opened on a folder
    throw InputError(file.string(), " is not a report: write one with a chapter's program and --json");
  }
}

}  // namespace flashbook
