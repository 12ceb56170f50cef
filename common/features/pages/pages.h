/// \file
/// Keys and values in pages, and without.
#pragma once
#include "common/attention/tensors.h"

namespace flashbook {

/// The shape with keys and values in one piece a sequence.
Shape without_pages(const Shape& shape);

/// Pages of `rows` keys for the shape's sequences, in random order; the pages of the first `shared` keys, a
/// multiple of `rows`, are those of all sequences.
Paging random_pages(const Shape& shape, int rows, int shared, uint64_t seed);

/// Copies K and V from their pages to [batch, kv_heads, seqlen_k, head_dim]; the rest of the inputs is kept.
/// Rows beyond a sequence's length become NaN.
Inputs gather_pages(const Shape& shape, const Inputs& inputs);

/// The reverse. Rows that no sequence uses are NaN, so that a kernel that reads them shows.
Inputs scatter_pages(const Shape& shape, const Inputs& inputs);

}  // namespace flashbook
