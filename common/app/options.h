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

/// How many rows are held against the oracle.
enum class CheckMode {
  automatic,  ///< every row while that takes seconds, else a sample
  full,
  sample,
  off,
};

/// A row of O.
struct RowOf {
  int batch, head, query;
};

/// A valid request: defaults are filled in, files are read, and the shape is that of the files.
struct Options {
  Shape shape;
  Operation operation = Operation::forward;  ///< what the steps compute
  std::optional<Inputs> inputs;              ///< from files; otherwise they are made from `seed`
  std::vector<int> steps;                    ///< which steps, ascending
  bool every_step = true;  ///< --step all: a step that cannot run the shape is passed over, visibly
  CheckMode check = CheckMode::automatic;
  std::optional<int>
      reps;  ///< timed runs of a step; without it, as many of 30 as fit half a second, in the simulator one
  device::Together together;                ///< how ranks work together
  std::map<TensorId, std::string> outputs;  ///< files to write, by tensor
  std::string json;                         ///< file to write, or empty
  uint64_t seed = 1;
  std::optional<RowOf> inspected;  ///< the row to look into, instead of a run
  std::string inspect_to;          ///< folder for what is seen of it, or empty
  bool list = false;
};

/// What the command line came to: options to run with, or text to print and stop.
struct CommandLine {
  std::optional<Options> options;
  std::string text;  ///< the help, if `options` is empty
};

/// Parses and validates. Throws InputError with one line that names the option and the cure, and
/// device::HardwareMissing if --device asks for a machine that this build is not. `--step all` means the
/// steps that compute what the first one does.
CommandLine parse_command_line(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace flashbook
