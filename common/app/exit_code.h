/// \file
/// How a chapter's program ends.
#pragma once
#include <functional>

namespace flashbook {

constexpr int kRight = 0, kWrongResult = 1, kWrongUsage = 2, kHardwareMissing = 77;

/// Returns the result of `program`. If it throws, or if its output could not be written, returns the exit
/// code for that and prints the reason on stderr after the program's name, in one line if the user can fix
/// it.
int exit_code(const char* name, const std::function<int()>& program);

}  // namespace flashbook
