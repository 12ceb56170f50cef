// Feeds arbitrary bytes to the .npy reader: each input must give an array or an InputError.
// The preset `fuzz` builds it; CMakeLists.txt here shows how to run it. Add inputs that crash it to
// corpus/npy, which npy_test.cpp replays.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "common/attention/error.h"
#include "common/attention/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    const flashbook::NpyArray array = flashbook::parse_npy(std::as_bytes(std::span(data, size)), "fuzz.npy");
    int64_t count = 1;
    for (int64_t extent : array.shape) count *= extent;
    if (count < 1 || count != int64_t(array.values.size())) std::abort();
  } catch (const flashbook::InputError& error) {
    // The message must be one line that names the file.
    const std::string_view message = error.what();
    if (!message.starts_with("fuzz.npy ")) std::abort();
    for (char c : message)
      if (c < ' ' || c > '~') std::abort();
  }
  return 0;
}
