/// \file
/// A list of visible blocks.
#pragma once
#include "common/features/array.h"

namespace flashbook {

/// Blocks of pairs that are visible; pairs in other blocks are not. None listed: no restriction.
struct Blocks {
  int queries = 0;        ///< a block's rows, 0: no restriction
  int keys = 0;           ///< a block's columns
  Array<int> first = {};  ///< [rows of blocks + 1]: a row's blocks are listed from here, shared by all heads
  Array<int> key_blocks = {};  ///< which blocks of keys, ascending in a row

  bool operator==(const Blocks&) const = default;
};

}  // namespace flashbook
