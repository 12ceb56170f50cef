#include "common/app/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>

#include "common/attention/error.h"

namespace flashbook {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // the same limit as Linux

std::error_code last_error() { return {errno, std::generic_category()}; }

/// Returns the number after `prefix`, if nothing follows the number.
std::optional<int> number_behind(const std::string& text, const std::string& prefix) {
  int number = 0;
  if (!text.starts_with(prefix)) return std::nullopt;
  const char *first = text.data() + prefix.size(), *last = text.data() + text.size();
  const auto [rest, error] = std::from_chars(first, last, number);
  if (error != std::errc() || rest != last) return std::nullopt;
  return number;
}

/// The target of a name: a file, which need not exist yet, or an open descriptor.
struct Target {
  fs::path file;
  std::optional<int> descriptor;
};

/// Follows links. A link to an open descriptor is not followed further: its file may have been renamed, or
/// have no name at all.
Target target_of(fs::path file) {
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    const fs::path folder = fs::weakly_canonical(file.has_parent_path() ? file.parent_path() : ".", error);
    if (!error) file = folder / file.filename();
    for (const std::string& open :
         {std::string("/proc/self/fd/"), "/proc/" + std::to_string(getpid()) + "/fd/"})
      if (const auto descriptor = number_behind(file.string(), open)) return {file, descriptor};
    if (!fs::is_symlink(fs::symlink_status(file, error))) break;
    const fs::path next = fs::read_symlink(file, error);
    if (error) break;
    file = next.is_absolute() ? next : file.parent_path() / next;
  }
  return {file, std::nullopt};
}

/// Returns whether `file` is neither a file nor a folder but a device such as /dev/null, a pipe or a socket.
bool is_special(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

std::string folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path().string() : ".";
}

std::error_code write_all(int descriptor, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = ::write(descriptor, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return last_error();
    contents.remove_prefix(std::size_t(written));
  }
  return {};
}

/// Opens a file, writes all of it and closes it.
std::error_code write_to(const fs::path& file, int flags, mode_t mode, std::string_view contents) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | flags, mode);
  if (descriptor < 0) return last_error();
  std::error_code error = write_all(descriptor, contents);
  if (!error && (flags & O_CREAT) && mode != 0666 && ::fchmod(descriptor, mode) != 0) error = last_error();
  if (::close(descriptor) != 0 && !error) error = last_error();
  return error;
}

std::string partial_name(const fs::path& file) { return file.string() + ".partial-"; }

/// Removes temporary files of `file` left behind by killed programs.
void remove_left_over(const fs::path& file) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(file), error)) {
    const auto process = number_behind(entry.path().filename().string(), partial_name(file.filename()));
    if (process && ::kill(*process, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), error);
  }
}

std::error_code replace(const fs::path& file, std::string_view contents) {
  remove_left_over(file);
  struct stat before;
  const mode_t mode = ::stat(file.c_str(), &before) == 0 ? before.st_mode & 07777 : 0666;
  const std::string partial = partial_name(file) + std::to_string(getpid());
  std::error_code error = write_to(partial, O_CREAT | O_TRUNC, mode, contents);
  if (!error) fs::rename(partial, file, error);
  if (error) ::unlink(partial.c_str());
  return error;
}

}  // namespace

void write_whole_file(const fs::path& file, std::string_view contents) {
  const Target target = target_of(file);
  std::cout.flush();  // so that earlier output comes first
  const std::error_code error = target.descriptor         ? write_all(*target.descriptor, contents)
                                : is_special(target.file) ? write_to(target.file, 0, 0, contents)
                                                          : replace(target.file, contents);
  if (error)
    throw InputError(file.string(), " cannot be written (", error.message(),
                     "): name a file in a writable folder");
}

std::string why_not_writable(const fs::path& file) {
  const Target target = target_of(file);
  if (target.descriptor) {
    const int flags = ::fcntl(*target.descriptor, F_GETFL);
    const bool writable = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
    return writable ? "" : "that descriptor is not open for writing; name a file";
  }
  std::error_code error;
  if (is_special(target.file))
    return ::access(target.file.c_str(), W_OK) == 0 ? "" : "it cannot be written to; name a file";
  const std::string folder = folder_of(target.file);
  if (!fs::is_directory(folder, error)) return "the folder " + folder + " does not exist; make it first";
  if (fs::is_directory(target.file, error)) return "that is a folder; name a file in it";
  if (::access(folder.c_str(), W_OK) != 0)
    return "the folder " + folder + " cannot be written to; choose another";
  return "";
}

bool same_file(const fs::path& one, const fs::path& other) {
  const Target a = target_of(one), b = target_of(other);
  if (a.descriptor || b.descriptor || is_special(a.file) || is_special(b.file)) return false;
  std::error_code error;
  return a.file == b.file || fs::equivalent(a.file, b.file, error);
}

}  // namespace flashbook
