/// \file
/// Step 2 with tiles of other sizes, for the sweep over block sizes.
#pragma once
#include <cstddef>
#include <span>

#include "common/app/chapter.h"

namespace flashbook {

/// Step 2 with one size of tiles: a chapter of one step, so that whatever measures chapters can measure it.
/// Its why_not says where the tiles do not fit into shared memory.
struct BlockSize {
  int rows;  ///< queries and keys of a tile
  Chapter chapter;
  std::size_t (*shared_bytes)(const Shape& shape);  ///< of a block
};

/// The sweep: tiles of 16, 32, 64, 96 and 128 rows, BF16 only.
std::span<const BlockSize> flash_attention_1_block_sizes();

}  // namespace flashbook
