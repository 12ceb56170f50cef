/// \file
/// Chapter 4: FlashAttention-2, split queries, everything in registers.
#pragma once
#include "common/app/chapter.h"

namespace flashbook {

extern const Chapter kFlashAttention2;

namespace fa2 {

/// The chapter's why_not on a machine that grants a block so much shared memory.
std::string why_not_within(int64_t shared_bytes_of_block, const Shape& shape, int step);

}  // namespace fa2

}  // namespace flashbook
