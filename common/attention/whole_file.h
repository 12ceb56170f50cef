/// \file
/// Files that appear whole or not at all.
#pragma once
#include <filesystem>
#include <string_view>

namespace flashbook {

/// Writes `contents` beside `file` and renames it into place, so that nobody ever sees half of it and a
/// failure leaves what was there before; a device or a pipe is written to. Throws InputError, naming the
/// file, the reason and the cure, if that fails.
void write_whole_file(const std::filesystem::path& file, std::string_view contents);

}  // namespace flashbook
