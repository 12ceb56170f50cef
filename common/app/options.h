/// \file
/// The command line of a chapter's program.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/app/chapter.h"

namespace flashbook {

/// The number of rows compared with the oracle.
enum class CheckMode {
  automatic,  ///< every row if that takes seconds, otherwise a sample
  full,
  sample,
  off,
};

struct RowOf {
  int batch, head, query;
};

/// A valid request: defaults are filled in, files have been read, and the problem matches the files.
struct Options {
  Spec spec;
  Operation operation = Operation::forward;  ///< what the steps compute
  std::optional<Inputs> inputs;              ///< inputs from files; otherwise they are generated from `seed`
  std::vector<int> steps;                    ///< the selected steps, ascending
  bool every_step = true;  ///< --step all: a step that cannot run the problem is skipped, visibly
  CheckMode check = CheckMode::automatic;
  std::optional<int>
      reps;  ///< timed runs of a step; default: up to 30 within half a second, one in the simulator
  device::Together together;                ///< how ranks communicate
  std::map<TensorId, std::string> outputs;  ///< output files, by tensor
  std::string json;                         ///< output file; empty if there is none
  uint64_t seed = 1;
  std::optional<RowOf> inspected;  ///< row to inspect instead of running
  std::string inspect_to;          ///< folder for the inspected values; empty if there is none
  bool list = false;
};

/// The result of parsing a command line: options to run with, or text to print before exiting.
struct CommandLine {
  std::optional<Options> options;
  std::string text;  ///< the help, if `options` is empty
};

/// Parses and validates, with no side effects except reading files. Throws InputError with one line that
/// names the option and the fix, and device::HardwareMissing if --device requests a machine for which this
/// build was not made. `--step all` means the steps that compute the same operation as the first one.
CommandLine parse_command_line(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace flashbook
