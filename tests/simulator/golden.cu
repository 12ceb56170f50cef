/// \file
/// The results of instructions, one line per case: name, FNV-1a hash of the result's bytes, first words.
///
/// One source, two builds. golden_h200.txt has the output of an H200, and the simulator must print the same,
/// bit by bit. Integer cases are exact in any order of addition; real ones need FLASHBOOK_SIM_EXACT=1. Only
/// results that CUDA and PTX define are compared: for wmma the product, not the layout of a fragment.
///
///     golden          prints every case
///     golden FILE     compares with the lines in FILE; 0 if all are equal, 1 if not, 77 without the GPU for
///     it
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <stdexcept>
#include <utility>

#include "tests/simulator/golden.h"

namespace flashbook::golden {
namespace {

/// Returns the functions to run, by name.
std::map<std::string, void (*)()>& all_cases() {
  static std::map<std::string, void (*)()> cases;
  return cases;
}

/// Each case's line, by name, in order.
std::vector<std::pair<std::string, std::string>> lines;

}  // namespace

Cases::Cases(const char* name, void (*run)()) { all_cases()[name] = run; }

void report(const std::string& name, const void* result, std::size_t bytes) {
  uint64_t hash = 1469598103934665603;
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(result)[i]) * 1099511628211;
  uint32_t words[4];
  std::memcpy(words, result, sizeof words);
  char text[64];
  std::snprintf(text, sizeof text, "%016llx  %08x %08x %08x %08x", static_cast<unsigned long long>(hash),
                words[0], words[1], words[2], words[3]);
  lines.emplace_back(name, text);
}

namespace {

/// Returns the lines of a file of cases, by name. A name ends before two spaces.
std::map<std::string, std::string> read_lines(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  std::map<std::string, std::string> expected;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t end = line.find("  ");
    if (end != line.npos) expected[line.substr(0, end)] = line.substr(line.find_first_not_of(' ', end));
  }
  return expected;
}

/// Compares the results with a file and prints the differences, including cases that the file lacks. Returns
/// whether all lines of the file match.
bool compare(const char* path) {
  auto expected = read_lines(path);
  bool equal = true;
  int compared = 0;
  for (const auto& [name, text] : lines) {
    const auto line = expected.find(name);
    if (line == expected.end()) {
      std::printf("no hardware data  %-32s  %s\n", name.c_str(), text.c_str());
      continue;
    }
    ++compared;
    if (line->second != text) {
      equal = false;
      std::printf("differs           %-32s  %s\n       expected:  %-32s  %s\n", name.c_str(), text.c_str(),
                  "", line->second.c_str());
    }
    expected.erase(line);
  }
  for (const auto& [name, text] : expected) {
    equal = false;
    std::printf("no such case      %s\n", name.c_str());
  }
  std::printf("%d cases compared with %s: %s\n", compared, path, equal ? "equal" : "NOT equal");
  return equal && compared > 0;
}

int run(int count, char** arguments) {
  // Tensor cores of other generations add differently, and stmatrix needs Hopper.
  if (device::info().compute_capability != 90)
    throw device::HardwareMissing("the golden data are of an H200, compute capability 9.0");
  try {
    for (const auto& [name, run] : all_cases()) run();
  } catch (const std::exception& error) {
    throw std::runtime_error("after the case " + (lines.empty() ? "of the beginning" : lines.back().first) +
                             ": " + error.what());
  }
  if (count > 1) return compare(arguments[1]) ? 0 : 1;
  for (const auto& [name, text] : lines) std::printf("%-34s  %s\n", name.c_str(), text.c_str());
  return 0;
}

}  // namespace
}  // namespace flashbook::golden

int main(int count, char** arguments) {
  try {
    return flashbook::golden::run(count, arguments);
  } catch (const flashbook::device::HardwareMissing& missing) {
    std::fprintf(stderr, "%s\n", missing.what());
    return 77;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
