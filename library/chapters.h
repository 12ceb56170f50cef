/// \file
/// Every chapter of the book, for programs that measure or export them all.
#pragma once
#include <span>

#include "common/app/chapter.h"

namespace flashbook {

/// The descriptors, by ascending number. The build makes the list (CMakeLists.txt here).
std::span<const Chapter* const> all_chapters();

/// The chapter of that number, or null.
inline const Chapter* chapter_numbered(int number) {
  for (const Chapter* chapter : all_chapters())
    if (chapter->number == number) return chapter;
  return nullptr;
}

}  // namespace flashbook
