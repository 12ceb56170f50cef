/// \file
/// The shape of one attention problem, and what makes it valid.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/layout.h"
#include "common/attention/visibility.h"
#include "common/features/list.h"
#include "common/features/pages/paging.h"
#include "common/features/ranks/token_order.h"
#include "common/features/types/scaling.h"
#include "common/numeric/arithmetic.h"
#include "common/numeric/dtype.h"

namespace flashbook {

/// Latent attention (DeepSeek-V2, arXiv 2405.04434): a key of 576 elements, whose first 512 are the value.
/// head_dim is 576, and V is not a separate tensor.
constexpr int kLatentKeyDim = 576, kLatentValueDim = 512;

/// Returns the default number of columns of V: as many as a key has.
constexpr int default_value_dim(int head_dim) {
  return head_dim == kLatentKeyDim ? kLatentValueDim : head_dim;
}

/// One attention problem. Tensors are `[batch, heads, seqlen, head_dim]`: Q and O have `heads` and
/// `seqlen_q`, K and V have `kv_heads` and `seqlen_k`. The log-sum-exp has one number per row of O. `layout`
/// says where the elements are.
struct Shape {
  int batch = 1;
  int heads = 1;     ///< query heads
  int kv_heads = 1;  ///< divides heads; query head h reads key head h / (heads / kv_heads)
  int seqlen_q = 1;
  int seqlen_k = 1;
  int head_dim = 64;  ///< for Q and K: a multiple of 8 up to 256, or kLatentKeyDim for latent attention
  int value_dim = default_value_dim(head_dim);  ///< columns of V and of O
  Visibility visibility = {};
  DType dtype = DType::bf16;
  float scale = 0.125f;               ///< factor on the scores; by default 1 / sqrt(head_dim)
  bool e4m3_cache = false;            ///< K and V are e4m3, whatever dtype Q and O have; for decoding
  Scaling scaling = Scaling::tensor;  ///< for e4m3; other types have no scales
  /// For e4m3: K and V are stored without the means of their columns, which are separate tensors.
  bool mean_subtracted = false;
  ScoreFunction score = {};
  Layout layout = {};
  Paging paging = {};
  /// The total number of queries if sequences have different numbers, up to seqlen_q; a caller's table says
  /// where they begin. Q and O are [queries, heads] or [heads, queries], by the strides of heads and rows;
  /// the log-sum-exp is [heads, queries]. 0: every sequence has seqlen_q. The oracle refuses it: compare
  /// each sequence on its own.
  int packed_queries = 0;
  /// No two blocks share a sequence's keys, so that a sequence's result is bitwise the same alone and in any
  /// batch. A decoding step may then leave multiprocessors idle.
  bool unsplit = false;
  int ranks = 1;  ///< GPUs that share the tokens; the tensors above hold the tokens of all GPUs
  std::optional<TokenOrder> order = {};  ///< the tokens of each GPU; none: the step's own order

  bool is_latent() const { return head_dim == kLatentKeyDim; }  ///< V is the first columns of K
  void set_head_dim(int dim) { head_dim = dim, value_dim = default_value_dim(dim); }

  /// Returns the keys of a sequence, and the number of pages for seqlen_k keys.
  int length_of(int batch) const {
    const Array<int>& lengths = visibility.lengths;
    return lengths.empty() || lengths.is_on_device() ? seqlen_k : lengths[std::size_t(batch)];
  }
  int pages_of_sequence() const { return int(ceil_div(int64_t(seqlen_k), paging.rows)); }

  bool causal() const { return visibility.is_causal(); }
  bool is_default_layout() const { return layout == Layout{}; }
  /// Strides of a tensor with rows of head_dim or value_dim elements, never zero.
  Strides strides(TensorId id) const;

  int64_t q_rows() const { return int64_t(batch) * heads * seqlen_q; }     ///< rows of Q, O and log-sum-exp
  int64_t k_rows() const { return int64_t(batch) * kv_heads * seqlen_k; }  ///< rows of K and of V
  int64_t q_elements() const { return q_rows() * head_dim; }               ///< elements of Q
  int64_t k_elements() const { return k_rows() * head_dim; }               ///< elements of K
  int64_t v_elements() const { return k_rows() * value_dim; }              ///< elements of V
  /// Columns of K and of V, over batch and heads: their means are [batch, kv_heads, head_dim].
  int64_t k_columns() const { return int64_t(batch) * kv_heads * head_dim; }

  /// Returns the number of scales of Q: [1], [batch, kv_heads] or [batch, heads, blocks of 64 rows].
  int64_t q_scales() const { return q_scale_of(q_rows() - 1) + 1; }
  /// Returns the number of scales of K, and of V: [1], [batch, kv_heads] or [batch, kv_heads, blocks of 128
  /// rows]. With pages, scales by block are [pages, kv_heads], and those by head are the same for all
  /// sequences, which may share pages.
  int64_t k_scales() const;
  int64_t q_scale_of(int64_t row) const;  ///< index of the scale of a row of Q
  int64_t k_scale_of(int64_t row) const;  ///< index of the scale of a row of K or V

  /// Returns the number of keys that query row `query` sees if all are visible or the mask is causal: keys 0
  /// ... visible_keys - 1.
  int visible_keys(int query) const;

  bool operator==(const Shape&) const = default;
};

/// Returns the softmax scale of the papers, 1 / sqrt(head_dim).
float default_scale(int head_dim);

/// `shape` with latent keys instead of its own, one head for all query heads.
Shape with_latent_keys(Shape shape);

/// `shape` with keys and values in e4m3, with a scale for each head.
Shape with_e4m3_cache(Shape shape);

/// Throws InputError with the first reason why no chapter could run this shape, naming the option that fixes
/// it. Valid: every count >= 1, kv_heads divides heads, head_dim a multiple of 8 up to 256, or 576, scale
/// finite and > 0, at most 2^40 elements per tensor, and a visibility, a score function, a layout and pages
/// that fit these numbers.
void validate(const Shape& shape);

/// "batch 1, heads 16 (4 key heads), N 4096 x 1000, d 128, causal, bf16": what a report prints.
std::string describe(const Shape& shape);

}  // namespace flashbook
