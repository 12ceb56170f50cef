/// \file
/// The command line of bench/forward.
#pragma once
#include <string>
#include <vector>

#include "bench/grid.h"

namespace flashbook {

/// What the user asked for.
struct BenchOptions {
  Selection selection;
  double max_seconds = 2;              ///< of timed runs a cell
  std::string out;                     ///< result file, or empty
  std::vector<std::string> benchmark;  ///< what followed `--`: Google Benchmark's own options
  std::string help;                    ///< the text to print instead of measuring, if not empty
};

/// Parses the command line; throws InputError with one line that names the option and the cure.
BenchOptions parse_bench_options(int argc, char** argv);

}  // namespace flashbook
