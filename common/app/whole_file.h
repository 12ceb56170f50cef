/// \file
/// Files that appear whole or not at all.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace flashbook {

/// Writes `contents` beside `file` and renames it into place, so that nobody ever sees half of it and a
/// failure leaves what was there before, with its permissions. What follows a link goes to its target. A
/// device, a pipe or an open descriptor (/dev/stdout) is written to as it is. What a program that was killed
/// left unfinished goes when the same file is next written. Throws
/// InputError, naming the file, the reason and the cure, if that fails.
void write_whole_file(const std::filesystem::path& file, std::string_view contents);

/// Why `file` cannot be written, as far as that can be told beforehand, with the cure; empty if it can.
std::string why_not_writable(const std::filesystem::path& file);

/// Whether both names stand for one file that is renamed into place: the second would replace the first.
bool same_file(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace flashbook
