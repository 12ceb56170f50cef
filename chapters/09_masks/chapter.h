/// \file
/// Chapter 9: what a query may see, and functions on scores.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kMasks;

}  // namespace flashbook
