/// \file
/// Chapter 9: what a query may see, and functions on scores.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kMasks;          ///< steps 1 to 5; its `further` is the next one
extern const Chapter kMasksBackward;  ///< step 6

}  // namespace flashbook
