/// \file
/// The value of an option, and functions that read it.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace flashbook {

/// An option and the word after it. Each function throws InputError with a single line that names the option
/// and the fix.
struct Value {
  std::string option, text;

  int64_t whole() const;  ///< a whole number; "4k" means 4096
  int count() const;      ///< a whole number that fits in a Spec, at least 1
  float real() const;
  std::vector<Value> split() const;  ///< the parts of "3,17,0", each as a value
  /// Returns the value with this name, one of a few.
  template <typename T>
  T one_of(std::initializer_list<std::pair<const char*, T>> names) const {
    std::string listed;
    for (const auto& [name, value] : names) {
      if (text == name) return value;
      const bool last = name == (names.end() - 1)->first;
      listed += (listed.empty() ? "" : last ? " or " : ", ") + std::string(name);
    }
    refuse("give " + listed);
  }
  /// Throws an error such as "--seqlen is 'x': give a whole number".
  [[noreturn]] void refuse(const std::string& cure) const;
};

/// The options that were given, by name.
using Given = std::map<std::string, Value>;

/// Returns `text` without line breaks, whatever the user typed.
std::string one_line(std::string text);

}  // namespace flashbook
