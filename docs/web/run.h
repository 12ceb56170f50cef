/// \file
/// What a page runs: one step of a chapter, once, in the simulator, held against the oracle. It prints one
/// line of JSON.
///
/// It takes the options of the chapter's program. FLASHBOOK_SIM_ASYNC and FLASHBOOK_SIM_SEED say how,
/// FLASHBOOK_FAULT with which fault, as of any program.
#pragma once

namespace flashbook {

struct Chapter;

/// The program of a chapter's module. Returns its exit code.
int run_in_page(const Chapter& chapter, int count, char** words);

}  // namespace flashbook
