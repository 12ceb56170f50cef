/// \file
/// The command line of bench/forward.
#pragma once
#include <string>
#include <vector>

#include "bench/grid.h"

namespace flashbook {

/// The user's options.
struct BenchOptions {
  Selection selection;
  double max_seconds = 2;  ///< seconds of timed runs per cell
  std::string out;         ///< result file; empty if there is none
  std::string help;        ///< if not empty, text to print instead of measuring
};

/// Parses the command line; throws InputError with a line that names the option and what to use.
BenchOptions parse_bench_options(int argc, char** argv);

}  // namespace flashbook
