/// \file
/// The program that `flashbook profile` runs.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

/// The main function of a chapter's traced program: every step that can run the problem runs once, is
/// checked, and is reported in tables. It takes the options of run_chapter_program (program.h) and returns
/// its exit codes.
int profile_chapter(int argc, char** argv, const Chapter& chapter);

}  // namespace flashbook
