/// \file
/// Converts between paged and contiguous keys and values.
#pragma once
#include "common/attention/tensors.h"

namespace flashbook {

/// Returns the problem with contiguous keys and values.
Spec without_pages(const Spec& spec);

/// Returns pages of `rows` keys for the problem's sequences, in random order; the first `shared` keys, a
/// multiple of `rows`, are in the same pages for all sequences.
Paging random_pages(const Sizes& sizes, int rows, int shared, uint64_t seed);

/// Copies K and V from their pages to [batch, kv_heads, seqlen_k, head_dim]; the other inputs are unchanged.
/// Rows past a sequence's length become NaN.
Inputs gather_pages(const Spec& spec, const Inputs& inputs);

/// Copies K and V into pages. Rows that no sequence uses become NaN, which exposes kernels that read them.
Inputs scatter_pages(const Spec& spec, const Inputs& inputs);

}  // namespace flashbook
