/// \file
/// Files that appear completely or not at all.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace flashbook {

/// Writes `contents` to a temporary file in the same directory and renames it into place, so that no reader
/// sees a partial file, and a failure keeps the old file and its permissions. A link is followed; a device, a
/// pipe or an open descriptor (/dev/stdout) is written directly. Leftovers of a killed program are removed
/// when the same file is written again. On failure, throws InputError with the file, the reason and the fix.
void write_whole_file(const std::filesystem::path& file, std::string_view contents);

/// Returns why `file` cannot be written, if that can be detected in advance, and the fix; empty if it can.
std::string why_not_writable(const std::filesystem::path& file);

/// Returns whether both names refer to one file that is renamed into place, so the second replaces the first.
bool same_file(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace flashbook
