#include "common/app/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>

#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/device/device.h"

namespace flashbook {

void Value::refuse(const std::string& cure) const { throw InputError(option, " is '", text, "': ", cure); }

int64_t Value::whole() const {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool kilo = error == std::errc() && rest + 1 == end && (*rest == 'k' || *rest == 'K');
  if (error != std::errc() || (rest != end && !kilo) || (kilo && std::abs(value) > (int64_t(1) << 50)))
    refuse("give a whole number, such as 4096 or 4k");
  return kilo ? value * 1024 : value;
}

int Value::count() const {
  const int64_t value = whole();
  constexpr int kMost = std::numeric_limits<int>::max();
  if (value < 1) throw InputError(option, " is ", text, ": give at least 1");
  if (value > kMost) throw InputError(option, " is ", text, ": give at most ", kMost);
  return int(value);
}

float Value::real() const {
  std::size_t used = 0;
  float value = 0;
  try {
    value = std::stof(text, &used);
  } catch (const std::exception&) {
  }
  if (used == 0 || used != text.size()) refuse("give a number, such as 0.125");
  return value;
}

std::string Value::writable() const {
  if (const std::string reason = why_not_writable(text); !reason.empty())
    throw InputError(option, " ", text, ": ", reason);
  return text;
}

void check_device(const std::string& text) {
  const bool is_gpu = device::machine() == device::Machine::gpu;
  if (text == "auto" || text == (is_gpu ? "gpu" : "sim")) return;
  if (text == "gpu")
    throw device::HardwareMissing(
        "--device gpu: this program was built for the simulator. Build the GPU version: cmake --preset gpu "
        "&& cmake --build --preset gpu");
  if (text == "sim")
    throw InputError(
        "--device sim: this program was built for a GPU. Build the simulator's version: cmake --preset sim "
        "&& cmake --build --preset sim");
  Value{"--device", text}.refuse("give auto, gpu or sim");
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace flashbook
