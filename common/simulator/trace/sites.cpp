#include "common/simulator/trace/sites.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <mutex>
#include <set>
#include <tuple>

#include "common/simulator/source_lines.h"
#include "common/simulator/trace/callers.h"

namespace flashbook::sim {
namespace {

constexpr Site kInstruction = 1u << 31;

/// The instructions seen so far, whose numbers never change.
class Instructions {
 public:
  Site number(const char* instruction, Location where) {
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] =
        numbers_.try_emplace({instruction, where.file, where.line}, Site(known_.size()));
    if (is_new) known_.push_back({instruction, where});
    return kInstruction | entry->second;
  }
  const Instruction& of(Site site) {
    const std::lock_guard lock(mutex_);
    return known_[site & ~kInstruction];
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<const void*, const void*, int>, Site> numbers_;
  std::deque<Instruction> known_;
};

Instructions& instructions() {
  static Instructions& instructions = *new Instructions;
  return instructions;
}

std::string file_of(const std::string& place) { return place.substr(0, place.find(':')); }

/// Returns the lines of these calls in files other than `helper`: "kernel.cuh:42 or kernel.cuh:50".
std::string lines_of_calls(std::span<const std::uintptr_t> calls, const std::string& helper) {
  constexpr std::size_t kMax = 3;
  std::set<std::string> places;
  for (const auto& [offset, frames] : source_lines_of_code(calls)) {
    const auto place = std::find_if(frames.begin(), frames.end(),
                                    [&](const std::string& frame) { return file_of(frame) != helper; });
    if (place != frames.end()) places.insert(*place);
  }
  std::string text;
  for (std::size_t number = 0; const std::string& place : places)
    if (++number <= kMax) text += (text.empty() ? "" : " or ") + place;
  return text + (places.size() > kMax ? ", or another line" : "");
}

/// Returns a text such as "code at 0x1234".
std::string describe_code(Site site) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "code at 0x%x", site);
  return digits;
}

}  // namespace

const std::uintptr_t code_begin = 0 - offset_in_program(nullptr);

Site site_of_instruction(const char* instruction, Location where) {
  // An OS thread's last lookup of each site.
  struct Known {
    const char* instruction;
    Location where;
    Site site;
  };
  static thread_local std::array<Known, 256> cache{};
  const std::uintptr_t key = std::uintptr_t(instruction) / 8 + std::uintptr_t(where.line * 7 + where.column);
  Known& known = cache[key % cache.size()];
  if (known.instruction != instruction || known.where.line != where.line ||
      known.where.column != where.column || known.where.file != where.file)
    known = {instruction, where, instructions().number(instruction, where)};
  return known.site;
}

const Instruction* instruction_of(Site site) {
  return site & kInstruction ? &instructions().of(site) : nullptr;
}

std::map<Site, SourceLine> source_lines(std::span<const Site> sites, const void* kernel) {
  std::map<Site, SourceLine> lines;
  std::vector<std::uintptr_t> code;
  for (const Site site : sites)
    if (const Instruction* known = instruction_of(site))
      lines[site] = {.place = to_string(known->where), .instruction = known->name};
    else if (lines.try_emplace(site, SourceLine{.place = describe_code(site)}).second)
      code.push_back(site);
  for (const auto& [offset, found] : source_lines_of_code(code)) {
    const auto& frames = found;  // clang++ cannot capture structured bindings
    if (frames.empty()) continue;
    SourceLine& line = lines[Site(offset)];
    std::string& place = line.place;
    place = frames[0];
    const auto first_of = [&](auto belongs) { return *std::find_if(frames.begin(), frames.end(), belongs); };
    // The last frame belongs to the kernel, or to a helper that was not inlined.
    const std::string own = file_of(frames.front()), last = file_of(frames.back());
    if (own != last) {
      const std::string caller = first_of([&](const std::string& frame) { return file_of(frame) != own; });
      place += " from " + caller;
      if (file_of(caller) != last)
        line.kernel = first_of([&](const std::string& frame) { return file_of(frame) == last; });
    }
    const std::string calls = lines_of_calls(calls_that_lead_to(offset, kernel), last);
    if (calls.empty()) continue;
    if (own == last)
      place += " from " + calls;
    else
      line.kernel = calls;
  }
  return lines;
}

}  // namespace flashbook::sim
