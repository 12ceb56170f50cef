/// \file
/// The value of an option, and how it is read.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

namespace flashbook {

/// An option and the word after it. Each reading throws InputError in one line that names the option and the
/// cure.
struct Value {
  std::string option, text;

  int64_t whole() const;  ///< a whole number; "4k" means 4096
  int count() const;      ///< a whole number that a Shape can hold, 1 at least
  float real() const;
  /// The file, which can be written: what cannot is said now rather than after minutes of work.
  std::string writable() const;
  /// The value that one of a few names stands for.
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
  /// Throws: "--seqlen is 'x': give a whole number".
  [[noreturn]] void refuse(const std::string& cure) const;
};

/// Refuses a --device that this build is not: HardwareMissing for "gpu", InputError for "sim" and what is no
/// machine.
void check_device(const std::string& text);

/// `text` without line breaks, whatever was typed.
std::string one_line(std::string text);

}  // namespace flashbook
