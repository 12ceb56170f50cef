/// \file
/// The options of a program, in groups.
#pragma once
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <list>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/app/readings.h"
#include "common/attention/error.h"

namespace flashbook {

/// Each option is declared once, together with the function that stores its value. Options are read in the
/// order in which they are declared, whatever their order on the command line.
class Line {
 public:
  using Read = std::function<void(const Value&)>;

  Line(const std::string& title, const std::string& name) : app_(title, name) {
    app_.get_formatter()->column_width(26);
  }

  /// Starts a group in the help for options declared from now on.
  void group(const char* name) { group_ = name; }

  /// Declares an option with a value, or without one if `type` is null. An option that is not `shown` is left
  /// out of the help: no step supports it, and giving it causes an error that explains this.
  void value(const std::string& name, const char* type, const std::string& help, Read read,
             bool shown = true) {
    if (type == nullptr) return flag(name, help, std::move(read), shown);
    Declared& option = declared_.emplace_back(Declared{{name, ""}, std::move(read)});
    option.parsed = app_.add_option(name, option.value.text, help)->type_name(type);
    option.parsed->group(shown ? group_ : "");
  }
  void count(const char* name, const char* help, int& to, bool shown = true) {
    value(
        name, "N", help, [&to](const Value& given) { to = given.count(); }, shown);
  }
  /// Rejects a machine for which this build was not made.
  void device() {
    value("--device", "NAME", "auto (default), gpu or sim: refuse to run if this build is for the other",
          [](const Value& given) { check_device(given.text); });
  }
  void flag(const std::string& name, const std::string& help, Read read, bool shown = true) {
    Declared& option = declared_.emplace_back(Declared{{name, "set"}, std::move(read)});
    option.parsed = app_.add_flag(name, help)->group(shown ? group_ : "");
  }

  /// Declares work to be done between reading the options declared before it and those declared after it.
  void then(std::function<void()> work) {
    declared_.push_back({{}, [work = std::move(work)](const Value&) { work(); }});
  }

  /// Returns the help if it was requested; otherwise an empty string, and given() returns the options.
  std::string parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return app_.help();
    } catch (const CLI::ParseError& error) {
      throw InputError(one_line(error.what()), meant(argc, argv), " (--help lists the options)");
    }
    for (const auto& [value, read, option] : declared_) {
      if (option == nullptr || option->count() == 0) continue;
      // An empty value could be mistaken for an option that was not given.
      if (value.text.empty())
        throw InputError(value.option, " is empty: give a value, or leave the option out");
      given_.emplace(value.option, value);
    }
    return "";
  }
  const Given& given() const { return given_; }

  void read() const {
    for (const auto& [value, read, option] : declared_)
      if (option == nullptr || given_.contains(value.option)) read(value);
  }

  /// Parses and reads, and returns whether the program should continue. If not, the help is on `out`.
  bool read(int argc, const char* const* argv, std::ostream& out) {
    const std::string help = parse(argc, argv);
    out << help;
    if (help.empty()) read();
    return help.empty();
  }

 private:
  struct Declared {
    Value value;
    Read read;
    CLI::Option* parsed = nullptr;  ///< null for work between options
  };

  /// Suggests the option that is closest to the first unknown one; empty if none is close.
  std::string meant(int argc, const char* const* argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
      std::string best;
      size_t least = 3;  // largest number of edits that still looks like a typo
      for (const auto& [value, read, option] : declared_)
        if (option != nullptr && edits(word, value.option) < least) {
          best = value.option;
          least = edits(word, best);
        }
      if (word.starts_with("--") && least > 0 && !best.empty()) return "; did you mean " + best + "?";
    }
    return "";
  }

  /// Returns the number of letters to insert, delete or replace (Levenshtein, 1966).
  static size_t edits(const std::string& from, const std::string& to) {
    std::vector<size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= from.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= to.size(); ++j) {
        const size_t replaced = diagonal + (from[i - 1] != to[j - 1]);
        diagonal = std::exchange(row[j], std::min({row[j - 1] + 1, row[j] + 1, replaced}));
      }
    }
    return row.back();
  }

  CLI::App app_;
  std::string group_ = "Options";
  std::list<Declared> declared_;  // a list, since CLI11 keeps addresses
  Given given_;
};

}  // namespace flashbook
