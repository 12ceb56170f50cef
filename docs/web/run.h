/// \file
/// Runs one step of a chapter once in the simulator for a page, compares it with the oracle, and prints one
/// line of JSON.
///
/// It accepts the options of the chapter's program. FLASHBOOK_SIM_ASYNC, FLASHBOOK_SIM_SEED and
/// FLASHBOOK_FAULT have the same meaning as in any program.
#pragma once

namespace flashbook {

struct Chapter;

/// The program of a chapter's module. Returns its exit code.
int run_in_page(const Chapter& chapter, int count, char** words);

}  // namespace flashbook
