/// \file
/// Chapter 1: naive attention, three kernels with S and P in device memory.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kNaiveAttention;

}  // namespace flashbook
