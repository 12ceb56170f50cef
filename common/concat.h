/// \file
/// Builds messages from parts.
#pragma once
#include <sstream>
#include <string>

namespace flashbook {

/// Returns the parts as one text, such as concat("page ", 3, " of ", name).
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return std::move(text).str();
}

/// An exception whose message is concat() of its arguments.
template <typename Base>
struct ErrorOfParts : Base {
  template <typename... Parts>
  explicit ErrorOfParts(const Parts&... parts) : Base(concat(parts...)) {}
};

}  // namespace flashbook
