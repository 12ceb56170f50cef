/// \file
/// A list of visible blocks.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// Visible blocks of pairs; pairs in other blocks are hidden. An empty list restricts nothing.
struct Blocks {
  int queries = 0;             ///< rows per block; 0 means no restriction
  int keys = 0;                ///< columns per block
  Array<int> first = {};       ///< [rows of blocks + 1]: index of each row's first block; shared by all heads
  Array<int> key_blocks = {};  ///< indices of the blocks of keys, ascending in a row

  bool operator==(const Blocks&) const = default;
};

}  // namespace flashbook
