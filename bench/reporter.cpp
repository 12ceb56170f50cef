#include "bench/reporter.h"

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/app/report.h"
#include "common/app/whole_file.h"

namespace flashbook {

using nlohmann::ordered_json;

bool ResultReporter::ReportContext(const Context& context) {
  json_.SetOutputStream(&json_text_);
  json_.SetErrorStream(&std::cerr);
  if (!json_.ReportContext(context)) return false;
  write();  // report an unwritable file before the first cell and not after it
  return true;
}

void ResultReporter::ReportRuns(const std::vector<Run>& runs) {
  std::vector<Run> named;
  for (Run run : runs) {
    if (run.run_type == Run::RT_Aggregate)
      continue;  // aggregates of repetitions: each run is already a median
    const std::string name = run.run_name.function_name;
    run.run_name = {};
    run.run_name.function_name = name;
    named.push_back(std::move(run));
  }
  if (named.empty()) return;
  json_.ReportRuns(named);
  const ordered_json entries = write()["benchmarks"];
  for (std::size_t i = entries.size() - named.size(); i < entries.size(); ++i)
    std::cout << describe_result(entries[i]) << std::endl;
}

ordered_json ResultReporter::write() const {
  // Google's reporter closes its brackets only in Finalize; here they are closed after every cell.
  ordered_json whole = ordered_json::parse(json_text_.str() + "\n]\n}\n");
  for (const char* key : {"host_name", "executable", "load_avg", "caches"}) whole["context"].erase(key);
  if (!file_.empty()) write_whole_file(file_, whole.dump(1) + "\n");
  return whole;
}

std::string describe_result(const ordered_json& entry) {
  char line[200];
  const std::string name = entry.at("name");
  if (entry.value("error_occurred", false)) {
    std::snprintf(line, sizeof line, "%-44s  %s: ", name.c_str(), entry.value("label", "failed").c_str());
    return line + entry.value("error_message", "");
  }
  if (entry.contains("rmse")) {
    std::snprintf(line, sizeof line, "%-56s  RMSE %.2e, relative %.2e", name.c_str(),
                  entry["rmse"].get<double>(), entry["relative_rms"].get<double>());
    return line;
  }
  const double seconds = entry.at("real_time").get<double>() * 1e-3;
  const std::string rate =
      entry.contains("FLOPS") ? format_amount(entry["FLOPS"].get<double>(), "FLOP") + "/s" : "simulated";
  std::snprintf(line, sizeof line, "%-44s  %8s  %13s  error %.1e, median of %.0f%s", name.c_str(),
                format_seconds(seconds).c_str(), rate.c_str(), entry.value("error", 0.0),
                entry.value("runs", 0.0), entry.value("over_limit", 0.0) > 0 ? ", over the time limit" : "");
  return line;
}

}  // namespace flashbook
