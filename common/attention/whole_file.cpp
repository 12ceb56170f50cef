#include "common/attention/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "common/attention/error.h"

namespace flashbook {

void write_whole_file(const std::filesystem::path& file, std::string_view contents) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  // A device such as /dev/null is written to; renaming would put a file in its place.
  const bool is_device = fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
  fs::path partial = file;
  if (!is_device) partial += ".partial-" + std::to_string(getpid());

  errno = 0;
  std::ofstream stream(partial, std::ios::binary);
  stream.write(contents.data(), std::streamsize(contents.size()));
  stream.close();
  error.clear();
  if (!stream)
    error = std::error_code(errno, std::generic_category());  // a full disk, or a folder that is not there
  else if (!is_device)
    fs::rename(partial, file, error);
  if (!error) return;

  const std::string reason = error.message();
  if (!is_device) fs::remove(partial, error);
  throw InputError(file.string() + " cannot be written (" + reason +
                   "): name a file in a folder that can be written");
}

}  // namespace flashbook
