#include "bench/context.h"

#include <algorithm>

#include "common/app/machine_context.h"
#include "library/chapters.h"

namespace flashbook {

std::vector<std::pair<std::string, std::string>> measuring_context(std::span<const Cell> cells) {
  auto context = machine_context(
      std::ranges::any_of(cells, [](const Cell& c) { return c.chapter->runs_on == device::Place::device; }));
  for (const Chapter* chapter : all_chapters())
    context.emplace_back("ch" + std::string(chapter->name).substr(0, 2), chapter->title);
  return context;
}

}  // namespace flashbook
