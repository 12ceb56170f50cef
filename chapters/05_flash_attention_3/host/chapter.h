/// \file
/// Chapter 5: FlashAttention-3 on Hopper.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kFlashAttention3;

}  // namespace flashbook
