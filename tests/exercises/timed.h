/// \file
/// How long what an exercise launches takes. Where FLASHBOOK_COURSE_TIMES names a file, tests write that down
/// there: the machine in the first line, then a line for each run, the test's name and seconds.
///
/// Nothing depends on it: the process that runs a student's code could write any number. In the simulator the
/// seconds are those of the CPU that stands in for a GPU, and say nothing about one.
#pragma once
#include <functional>

namespace flashbook::testing {

/// Whether times are asked for.
bool is_timed();

/// Does `work`, which launches on the default stream; the caller waits. Where times are asked for, it begins
/// with a cold L2, and what it takes on the device is written down.
void timed(const std::function<void()>& work);

/// Does work that can be done again. Where times are asked for, it is timed as chapters' programs time a
/// step: 30 runs, or as many as begin within half a second.
void timed_in_runs(const std::function<void()>& work);

/// The length of sequences where capstones are timed: FLASHBOOK_COURSE_TIMED_LENGTH, or 4096.
int timed_length();

}  // namespace flashbook::testing
