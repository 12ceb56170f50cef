/// \file
/// Determines the exit code of a chapter's program.
#pragma once
#include <functional>

namespace flashbook {

constexpr int kRight = 0, kWrongResult = 1, kWrongUsage = 2, kHardwareMissing = 77;

/// Returns the result of `program`. If it throws, or if its output could not be written, returns the
/// matching exit code and prints the reason on stderr after the program's name, in one line if the user can
/// fix it.
int exit_code(const char* name, const std::function<int()>& program);

}  // namespace flashbook
