/// \file
/// Chapter 4: FlashAttention-2, split queries, everything in registers.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kFlashAttention2;

}  // namespace flashbook
