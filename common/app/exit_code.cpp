#include "common/app/exit_code.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <new>
#include <stdexcept>

#include "common/attention/error.h"
#include "common/device/device.h"

namespace flashbook {
namespace {

constexpr std::size_t kMaxMessage = 1000;
constexpr const char* kOutOfMemory = "out of memory: make --batch, --heads or --seqlen smaller";

/// Makes a user's text safe to quote in a message: one line, limited length, no control characters.
std::string printable(std::string message) {
  std::ranges::replace_if(
      message, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  if (message.size() <= kMaxMessage) return message;
  const std::string left_out = " [" + std::to_string(message.size() - kMaxMessage) + " characters] ";
  return message.replace(kMaxMessage / 4, message.size() - kMaxMessage, left_out);
}

/// Opens a closed stdin, stdout or stderr on an unusable file: otherwise the next file to be opened would get
/// its number, and printed text would go there.
void keep_standard_descriptors() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0)  // open() uses the lowest free number
      static_cast<void>(open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

}  // namespace

int exit_code(const char* name, const std::function<int()>& program) {
  keep_standard_descriptors();
  const auto fail = [&](const std::string& reason, int code) {
    std::cerr << name << ": " << reason << "\n";
    return code;
  };
  try {
    const int code = program();
    if (std::cout.flush()) return code;
    return fail("the report could not be printed: stdout is closed or its disk is full", kWrongUsage);
  } catch (const InputError& error) {
    return fail(printable(error.what()), kWrongUsage);
  } catch (const device::HardwareMissing& error) {
    return fail(error.what(), kHardwareMissing);
  } catch (const device::UsageError& error) {
    return fail(printable(error.what()), kWrongUsage);
  } catch (const std::bad_alloc&) {
    return fail(kOutOfMemory, kWrongUsage);
  } catch (const std::length_error&) {  // thrown by a vector larger than the address space
    return fail(kOutOfMemory, kWrongUsage);
  } catch (const std::exception& error) {
    return fail(error.what(), kWrongResult);
  }
}

}  // namespace flashbook
