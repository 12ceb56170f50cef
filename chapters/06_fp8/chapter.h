/// \file
/// Chapter 6: FP8.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kFp8;

}  // namespace flashbook
