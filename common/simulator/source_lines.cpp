#include "common/simulator/source_lines.h"

#ifdef __linux__
#include <link.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

namespace flashbook::sim {
namespace {

std::string hex(uint64_t number) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "0x%llx", static_cast<unsigned long long>(number));
  return digits;
}

/// Returns the difference between addresses in memory and in the program's file.
std::uintptr_t program_offset() {
#ifdef __linux__
  static const std::uintptr_t offset = [] {
    std::uintptr_t offset = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
          *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
          return 1;  // the program is the first object
        },
        &offset);
    return offset;
  }();
  return offset;
#else
  return 0;
#endif
}

/// Returns the running program's file name, quoted for a shell. The file is named explicitly, since
/// /proc/PID/exe of a program run by qemu is qemu itself.
const std::string& program_file() {
  static const std::string file = [] {
    std::error_code none;
    const std::string path = std::filesystem::read_symlink("/proc/self/exe", none).string();
    if (none || !std::filesystem::exists(path, none) || path.find('\'') != path.npos)
      return "/proc/" + std::to_string(getpid()) + "/exe";
    return "'" + path + "'";
  }();
  return file;
}

/// Returns the output of a command; empty if the command cannot be run.
std::string output_of([[maybe_unused]] const std::string& command) {
  std::string text;
#ifndef __EMSCRIPTEN__  // a page cannot run commands
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return text;
  char part[4096];
  while (const std::size_t size = std::fread(part, 1, sizeof part, pipe)) text.append(part, size);
  pclose(pipe);
#endif
  return text;
}

/// Returns whether a file implements the language of kernels, as opposed to a kernel.
bool is_language(std::string_view file) {
  for (const std::string_view folder :
       {"common/simulator/", "common/ptx/", "common/numeric/", "common/device/launch.h", "/include/c++/"})
    if (file.find(folder) != file.npos) return true;
  return false;
}

/// Returns "kernel.cuh:42" for "/path/kernel.cuh:42 (discriminator 3)"; empty if the line is unknown.
std::string short_place(std::string_view line) {
  line = line.substr(0, line.find(' '));
  if (line.find('?') != line.npos) return "";
  return std::string(line.substr(line.rfind('/') + 1));
}

/// Removes parameters, the return type and namespaces, including those in template arguments.
std::string short_name(std::string name) {
  int depth = 0;
  std::size_t begin = 0, end = name.size();
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth == 0 && name[i] == '(' && name.compare(i, 11, "(anonymous ") != 0) {
      end = i;
      break;
    }
    if (depth == 0 && (name[i] == ' ' || name[i] == ':')) begin = i + 1;
  }
  name = name.substr(begin, end - begin);
  for (std::size_t colons; (colons = name.rfind("::")) != name.npos;) {
    const std::size_t before = name.find_last_of("<, ", colons);
    name.erase(before + 1, colons + 2 - before - 1);
  }
  return name;
}

}  // namespace

std::uintptr_t offset_in_program(const void* code) { return std::uintptr_t(code) - program_offset(); }

std::map<std::uintptr_t, std::vector<std::string>> source_lines_of_code(
    std::span<const std::uintptr_t> offsets) {
  constexpr std::size_t kAtOnce = 1000;  // since the length of a command is limited
  std::map<std::uintptr_t, std::vector<std::string>> lines;
  for (std::size_t first = 0; first < offsets.size(); first += kAtOnce) {
    std::string command = "addr2line -a -i -e " + program_file();
    for (const std::uintptr_t offset : offsets.subspan(first, std::min(kAtOnce, offsets.size() - first)))
      command += " " + hex(offset);
    std::istringstream output(output_of(command + " 2>/dev/null"));
    std::vector<std::string>* known = nullptr;
    for (std::string text; std::getline(output, text);) {
      if (text.starts_with("0x"))
        known = &lines[std::strtoull(text.c_str(), nullptr, 16)];
      else if (const std::string place = short_place(text); known && !is_language(text) && !place.empty())
        known->push_back(place);
    }
  }
  return lines;
}

std::string function_name(const void* code) {
  if (!code) return "";
  const std::string name =
      output_of("addr2line -f -C -e " + program_file() + " " + hex(offset_in_program(code)) + " 2>/dev/null");
  const std::string first = name.substr(0, name.find('\n'));
  return first == "??" ? "" : short_name(first);
}

}  // namespace flashbook::sim
