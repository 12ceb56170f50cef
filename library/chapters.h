/// \file
/// Lists every chapter, for programs that measure or export all of them.
#pragma once
#include <span>

#include "common/app/chapter.h"

namespace flashbook {

/// Returns the descriptors in ascending order; CMakeLists.txt generates the list.
std::span<const Chapter* const> all_chapters();

/// Returns the chapter with this number, or null.
inline const Chapter* chapter_numbered(int number) {
  for (const Chapter* chapter : all_chapters())
    if (chapter->number == number) return chapter;
  return nullptr;
}

}  // namespace flashbook
