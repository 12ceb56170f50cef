#include "common/features/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>

#include "common/attention/error.h"

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
  constexpr int kMax = std::numeric_limits<int>::max();
  if (value < 1) throw InputError(option, " is ", text, ": give at least 1");
  if (value > kMax) throw InputError(option, " is ", text, ": give at most ", kMax);
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

std::vector<Value> Value::split() const {
  std::vector<Value> parts = {{option, ""}};
  for (const char c : text)
    if (c == ',')
      parts.push_back({option, ""});
    else
      parts.back().text += c;
  return parts;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

}  // namespace flashbook
