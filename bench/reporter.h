/// \file
/// Writes Google Benchmark's reports to a result file.
#pragma once
#include <benchmark/benchmark.h>

#include <nlohmann/json_fwd.hpp>
#include <sstream>
#include <string>

namespace flashbook {

/// Prints a line for each measured cell, and keeps the result file complete, so that an interruption loses
/// nothing. Removes Google Benchmark's additions to names ("/iterations:1/manual_time"), and the host's name
/// and paths.
class ResultReporter : public benchmark::BenchmarkReporter {
 public:
  /// If `file` is empty, results are only printed.
  explicit ResultReporter(std::string file) : file_(std::move(file)) {}

  /// These two throw InputError if the file cannot be written.
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  /// Writes the file with all results so far, and returns its content.
  nlohmann::ordered_json write() const;

  std::string file_;
  std::ostringstream json_text_;
  benchmark::JSONReporter json_;
};

/// Returns a result as a line: "forward/ch01/register_tile/bf16/d128/full/n4096 12.3 ms 44.7 TFLOP/s
/// error 1.2e-03, median of 163".
std::string describe_result(const nlohmann::ordered_json& entry);

}  // namespace flashbook
