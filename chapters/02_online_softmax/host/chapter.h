/// \file
/// Chapter 2: online softmax, on the CPU.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kOnlineSoftmax;

}  // namespace flashbook
