/// \file
/// The results of a program, as a table, as JSON, and as rungs of the ladder.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "common/app/committed.h"
#include "common/app/verdict.h"
#include "common/attention/operation.h"
#include "common/attention/spec.h"

namespace flashbook {

/// Returns the error of the first wrong tensor: "O against the oracle: error 3.1e-02, bound 1.2e-03; worst at
/// batch 0, ...". Empty if none is wrong.
std::string describe_failure(const std::vector<TensorVerdict>& verdicts, const std::string& against);

struct StepReport {
  int step = 0;
  std::string slug = {}, name = {};
  std::string shape = {};        ///< description, if it differs from the report's shape
  std::string why_not = {};      ///< why it could not run this shape; if set, the members below are not
  double flops = 0;              ///< from the cost model
  double memory_bytes = 0;       ///< from the chapter's cost model; 0 on the host
  double requested_bytes = 0;    ///< bytes that the multiprocessors request, by the cost model; 0 without one
  double workspace_bytes = 0;    ///< device memory beyond inputs and outputs
  std::string book_shape = {};   ///< description of the shape that a default run has on a GPU
  double book_memory_bytes = 0;  ///< memory_bytes for that shape; 0 if unknown
  std::vector<TensorVerdict> oracle = {};  ///< comparison with the oracle; empty if there was none
  std::vector<TensorVerdict> before = {};  ///< comparison with the previous chapter; empty if there was none
  std::string suspects = {};               ///< possible causes of a wrong result, one per line; often empty
  double seconds = 0;                      ///< median time of one run; 0 if not timed, as for wrong results
  int reps = 0;                            ///< number of runs behind the median

  bool ok() const;
};

struct Report {
  int chapter = 0;
  std::string name = {}, title = {};
  std::string machine = {};       ///< "NVIDIA H200", "simulator", "CPU, 2 cores"
  bool on_gpu = false;            ///< only then are times converted to TFLOP/s
  bool simulated = false;         ///< whether times come from the simulator
  std::string shape = {};         ///< description of the shape
  std::string checked_rows = {};  ///< "every row", "512 of 262144 rows", "nothing (--check off)"
  std::string before = {};  ///< what the results were compared with: a chapter, its step and the heads, or
                            ///< why not; empty for the first chapter
  std::vector<StepReport> steps = {};

  bool ok() const;  ///< whether no step that ran was wrong
};

/// Returns "1.5 ms" or "2.31 s", for example.
std::string format_seconds(double seconds);
/// Returns "268 MB" or "1.1 TFLOP", for example: three digits and a decimal prefix.
std::string format_amount(double value, const std::string& unit);

/// Tables are at most this wide, and lines of text at most as wide as the narrowest terminal.
inline constexpr std::size_t kColumns = 120, kTextColumns = 80;

/// Prints one program's results, with the reasons for anything wrong below the table. The simulator's rows
/// also show the times of the book's GPU; a GPU's rows show them if the shape is the same.
void print_report(std::ostream& out, const Report& report, const Committed& committed = committed_results());

/// Prints all programs' results as one table, with a row per step and the changes from step to step.
void print_ladder(std::ostream& out, const std::vector<Report>& reports,
                  const Committed& committed = committed_results());

/// Writes the report as JSON, completely or not at all. Throws InputError if the file cannot be written.
void write_json(const std::filesystem::path& file, const Report& report);

/// Reads the parts of write_json's output that the ladder needs. Throws InputError if the file is not such a
/// report.
Report read_json(const std::filesystem::path& file);

}  // namespace flashbook
