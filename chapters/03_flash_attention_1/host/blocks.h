/// \file
/// Steps 2 and 3 with tiles of other sizes, for the sweep over block sizes.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "common/app/chapter.h"

namespace flashbook {

/// A step with one tile size, as a chapter of one step, so that the tools that measure chapters can measure
/// it. Its limits reject tiles that do not fit in shared memory.
struct BlockSize {
  std::string name;   ///< in results: b64, split_k_64x64
  std::string label;  ///< description of the measurement
  Chapter chapter;
  std::size_t (*shared_bytes)(const Spec& spec);  ///< per block
};

/// Returns the sweep, BF16 only: step 2 with tiles of 16, 32, 64, 96 and 128 rows; step 3 with chapter 4's
/// tiles of 64 queries by 64 keys, its copies waited for at once and not.
std::span<const BlockSize> flash_attention_1_block_sizes();

}  // namespace flashbook
