/// \file
/// Chapter 3: FlashAttention-1, one fused kernel with tiles in shared memory.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kFlashAttention1;

}  // namespace flashbook
