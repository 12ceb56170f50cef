/// \file
/// The whole of a chapter's program.
#pragma once
#include <iosfwd>

#include "common/app/chapter.h"

namespace flashbook {

/// Prints what a chapter shows before its results.
using Preface = void (*)(std::ostream& out);

/// Parses the command line, makes or reads inputs, runs the steps asked for, checks each against the oracle
/// and against `before` (the last step of the chapter before; null for chapter 1), times those that are
/// right, prints the report.
///
/// Returns the exit code: 0 right, 1 a wrong result, 2 wrong usage, input or shape, 77 the hardware is
/// missing. Results go to stdout, progress and errors to stderr.
int run_chapter_program(int argc, char** argv, const Chapter& chapter, const Chapter* before,
                        Preface preface = nullptr);

}  // namespace flashbook
