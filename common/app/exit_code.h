/// \file
/// How a chapter's program ends.
#pragma once
#include <functional>

namespace flashbook {

constexpr int kRight = 0, kWrongResult = 1, kWrongUsage = 2, kHardwareMissing = 77;

/// What `program` returns; or, if it throws or what it printed got nowhere, the exit code for that, with the
/// reason on stderr behind the program's name, in one line if the user is to blame.
int exit_code(const char* name, const std::function<int()>& program);

}  // namespace flashbook
