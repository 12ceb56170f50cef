/// \file
/// As much of CLI11 as common/app/line.h uses, for a page, which has little room and shows no help: options
/// with one value, and flags.
#pragma once
#include <list>
#include <stdexcept>
#include <string>
#include <utility>

namespace CLI {

struct ParseError : std::runtime_error {
  using runtime_error::runtime_error;
};
struct CallForHelp {};

class Option {
 public:
  Option(std::string name, std::string* value) : name_(std::move(name)), value_(value) {}
  Option* type_name(const std::string&) { return this; }
  Option* group(const std::string&) { return this; }
  std::size_t count() const { return is_given_ ? 1 : 0; }

 private:
  friend class App;

  std::string name_;
  std::string* value_;  // null: a flag
  bool is_given_ = false;
};

class App {
 public:
  struct Formatter {
    void column_width(int) {}
  };

  App(const std::string&, const std::string&) {}
  Formatter* get_formatter() { return &formatter_; }
  Option* add_option(const std::string& name, std::string& value, const std::string&) {
    return &options_.emplace_back(name, &value);
  }
  Option* add_flag(const std::string& name, const std::string&) {
    return &options_.emplace_back(name, nullptr);
  }
  std::string help() const { return {}; }

  void parse(int count, const char* const* words) {
    for (int i = 1; i < count; ++i) {
      Option& option = named(words[i]);
      if (option.is_given_) throw ParseError(option.name_ + " is given twice");
      option.is_given_ = true;
      if (option.value_ == nullptr) continue;
      if (++i == count) throw ParseError(option.name_ + " needs a value");
      *option.value_ = words[i];
    }
  }

 private:
  Option& named(const std::string& word) {
    for (Option& option : options_)
      if (option.name_ == word) return option;
    throw ParseError("there is no option " + word);
  }

  std::list<Option> options_;
  Formatter formatter_;
};

}  // namespace CLI
