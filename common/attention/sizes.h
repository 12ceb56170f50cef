/// \file
/// The sizes of an attention problem.
#pragma once
#include <cstdint>

#include "common/numeric/dtype.h"

namespace flashbook {

/// Latent attention (DeepSeek-V2, arXiv 2405.04434): a key of 576 elements, whose first 512 are the value.
/// head_dim is 576, and V is not a separate tensor.
constexpr int kLatentKeyDim = 576, kLatentValueDim = 512;

/// A latent key in e4m3 (DeepSeek-V3.2's cache) has 656 bytes: 512 elements, a float for every 128 of them,
/// which is their scale, and 64 elements of 16 bits.
constexpr int kLatentScales = 4, kLatentColumnsPerScale = kLatentValueDim / kLatentScales;
constexpr int kLatentPositionAt = kLatentValueDim + kLatentScales * int(sizeof(float));
constexpr int kLatentRowBytes = kLatentPositionAt + 2 * (kLatentKeyDim - kLatentValueDim);

/// Returns the default number of columns of V: as many as a key has.
constexpr int default_value_dim(int head_dim) {
  return head_dim == kLatentKeyDim ? kLatentValueDim : head_dim;
}

/// Returns the softmax scale of the papers, 1 / sqrt(head_dim).
float default_scale(int head_dim);

/// Tensors are `[batch, heads, seqlen, head_dim]`: Q and O have `heads` and `seqlen_q`, K and V have
/// `kv_heads` and `seqlen_k`. The log-sum-exp has one number per row of O.
struct Sizes {
  int batch = 1;
  int heads = 1;     ///< query heads
  int kv_heads = 1;  ///< divides heads; query head h reads key head h / (heads / kv_heads)
  int seqlen_q = 1;
  int seqlen_k = 1;
  int head_dim = 64;  ///< for Q and K: a multiple of 8 up to 256, or kLatentKeyDim for latent attention
  int value_dim = default_value_dim(head_dim);  ///< columns of V and of O
  DType dtype = DType::bf16;
  float scale = 0.125f;  ///< factor on the scores; by default 1 / sqrt(head_dim)

  bool is_latent() const { return head_dim == kLatentKeyDim; }  ///< V is the leading columns of K
  void set_head_dim(int dim) { head_dim = dim, value_dim = default_value_dim(dim); }

  int64_t q_rows() const { return int64_t(batch) * heads * seqlen_q; }     ///< rows of Q, O and log-sum-exp
  int64_t k_rows() const { return int64_t(batch) * kv_heads * seqlen_k; }  ///< rows of K and of V
  int64_t q_elements() const { return q_rows() * head_dim; }               ///< elements of Q
  int64_t k_elements() const { return k_rows() * head_dim; }               ///< elements of K
  int64_t v_elements() const { return k_rows() * value_dim; }              ///< elements of V
  /// Returns the columns of K and of V, over batch and heads: their means are [batch, kv_heads, head_dim].
  int64_t k_columns() const { return int64_t(batch) * kv_heads * head_dim; }

  bool operator==(const Sizes&) const = default;
};

}  // namespace flashbook
