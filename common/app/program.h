/// \file
/// The main function of a chapter's program.
#pragma once
#include <iosfwd>

#include "common/app/chapter.h"

namespace flashbook {

/// Prints a chapter's introduction to its results.
using Preface = void (*)(std::ostream& out);

/// Parses the command line, generates or reads inputs, and runs the selected steps. It checks each step
/// against the oracle and against `before` (the last step of the previous chapter; null for the first), times
/// the correct ones, and prints the report.
///
/// Returns the exit code: 0 if all results are right, 1 if one is wrong, 2 for wrong usage, input or problem,
/// 77 if hardware is missing. Results go to stdout, progress and errors to stderr.
int run_chapter_program(int argc, char** argv, const Chapter& chapter, const Chapter* before,
                        Preface preface = nullptr);

}  // namespace flashbook
