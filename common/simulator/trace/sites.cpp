#include "common/simulator/trace/sites.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

namespace flashbook::sim {
namespace {

constexpr Site kInstruction = 1u << 31;

/// The instructions that were seen. The numbers are handed out once and for all.
class Instructions {
 public:
  Site number(const char* instruction, Location where) {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] =
        numbers_.try_emplace({instruction, where.file, where.line}, Site(known_.size()));
    if (is_new) known_.push_back({to_string(where), instruction});
    return kInstruction | entry->second;
  }
  SourceLine line(Site site) {
    const std::lock_guard lock(mutex_);
    return known_[site & ~kInstruction];
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<const void*, const void*, int>, Site> numbers_;
  std::deque<SourceLine> known_;
};

Instructions& instructions() {
  static Instructions& instructions = *new Instructions;
  return instructions;
}

std::string hex(uint64_t number) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "0x%llx", static_cast<unsigned long long>(number));
  return digits;
}

/// How far from the addresses in its file the program lies in memory.
std::uintptr_t program_offset() {
  static const std::uintptr_t offset = [] {
    std::uintptr_t offset = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
          *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
          return 1;  // the program comes first
        },
        &offset);
    return offset;
  }();
  return offset;
}

/// What a command prints; empty if it cannot be run.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return text;
  char part[4096];
  while (const std::size_t size = std::fread(part, 1, sizeof part, pipe)) text.append(part, size);
  pclose(pipe);
  return text;
}

/// Whether a file belongs to what a kernel is written in and not to the kernel.
bool is_language(std::string_view file) {
  for (const std::string_view folder :
       {"common/simulator/", "common/ptx/", "common/numeric/", "/include/c++/"})
    if (file.find(folder) != file.npos) return true;
  return false;
}

/// "kernel.cuh:42" from "/path/kernel.cuh:42 (discriminator 3)"; empty if the line is not known.
std::string short_place(std::string_view line) {
  line = line.substr(0, line.find(' '));
  if (line.find('?') != line.npos) return "";
  return std::string(line.substr(line.rfind('/') + 1));
}

/// Without the parameters, the return type and the namespaces, those of template arguments too.
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

Site site_of_code(const void* return_address) {
  // The call ends where the next instruction begins, which may belong to the next line.
  return Site(std::uintptr_t(return_address) - program_offset()) - 1;
}

Site site_of_instruction(const char* instruction, Location where) {
  return instructions().number(instruction, where);
}

std::map<Site, SourceLine> source_lines(std::span<const Site> sites) {
  constexpr std::size_t kAtOnce = 1000;  // a command has a longest length
  std::map<Site, SourceLine> lines;
  std::vector<Site> code;
  for (const Site site : sites) {
    if (site & kInstruction)
      lines[site] = instructions().line(site);
    else if (lines.try_emplace(site, SourceLine{"code at " + hex(site), ""}).second)
      code.push_back(site);
  }
  for (std::size_t first = 0; first < code.size(); first += kAtOnce) {
    std::string command = "addr2line -a -i -e /proc/" + std::to_string(getpid()) + "/exe";
    for (std::size_t i = first; i < std::min(first + kAtOnce, code.size()); ++i)
      command += " " + hex(code[i]);
    std::istringstream output(output_of(command + " 2>/dev/null"));
    SourceLine* line = nullptr;
    std::string file;  // of the line; empty until it is found
    for (std::string text; std::getline(output, text);) {
      if (text.starts_with("0x")) {
        const auto found = lines.find(Site(std::strtoull(text.c_str(), nullptr, 16)));
        line = found == lines.end() ? nullptr : &found->second;
        file.clear();
        continue;
      }
      // Frames come from the inside out.
      const std::string place = short_place(text);
      if (!line || is_language(text) || place.empty()) continue;
      const std::string file_here = place.substr(0, place.find(':'));
      if (file.empty()) {
        line->place = place;
        file = file_here;
      } else if (file_here != file) {
        line->place += " from " + place;
        line = nullptr;
      }
    }
  }
  return lines;
}

std::string function_name(const void* code) {
  if (!code) return "";
  const std::string name = output_of("addr2line -f -C -e /proc/" + std::to_string(getpid()) + "/exe " +
                                     hex(std::uintptr_t(code) - program_offset()) + " 2>/dev/null");
  const std::string first = name.substr(0, name.find('\n'));
  return first == "??" ? "" : short_name(first);
}

}  // namespace flashbook::sim
