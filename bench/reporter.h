/// \file
/// From Google Benchmark's reports to a result file.
#pragma once
#include <benchmark/benchmark.h>

#include <nlohmann/json_fwd.hpp>
#include <sstream>
#include <string>

namespace flashbook {

/// Prints a line for each cell as it is measured, and keeps the result file complete all the while, so that
/// what was measured before an interruption stays. Cells keep their exact names: Google Benchmark's additions
/// ("/iterations:1/manual_time") are left out, as are the host's name and paths.
class ResultReporter : public benchmark::BenchmarkReporter {
 public:
  /// `file` may be empty: then results are only printed.
  explicit ResultReporter(std::string file) : file_(std::move(file)) {}

  /// These two throw InputError if the file cannot be written.
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  /// Writes the file as far as it is known, and returns what it holds.
  nlohmann::ordered_json write() const;

  std::string file_;
  std::ostringstream json_text_;
  benchmark::JSONReporter json_;
};

/// A result in one line: "forward/ch01/step4/bf16/d128/full/n4096  12.3 ms  44.7 TFLOP/s  error 1.2e-03,
/// median of 163".
std::string describe_result(const nlohmann::ordered_json& entry);

}  // namespace flashbook
