/// \file
/// What an attention function is given: pointers, and on the host the values behind them.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "common/attention/shape.h"

namespace flashbook {

/// Pointers to the tensors of one call, all in the memory of the machine that runs it.
struct Tensors {
  const void* q = nullptr;    ///< [batch, heads, seqlen_q, head_dim], Shape::dtype
  const void* k = nullptr;    ///< [batch, kv_heads, seqlen_k, head_dim], Shape::dtype
  const void* v = nullptr;    ///< [batch, kv_heads, seqlen_k, head_dim], Shape::dtype
  void* o = nullptr;          ///< [batch, heads, seqlen_q, head_dim], output_type(Shape::dtype)
  float* lse = nullptr;       ///< [batch, heads, seqlen_q], natural log-sum-exp of the scaled scores
  void* workspace = nullptr;  ///< the bytes the chapter asked for, or null if it asked for none
};

/// Q, K and V on the host as float, each value already rounded to Shape::dtype, so that every machine and the
/// oracle start from the same numbers.
struct Inputs {
  std::vector<float> q;  ///< [batch, heads, seqlen_q, head_dim]
  std::vector<float> k;  ///< [batch, kv_heads, seqlen_k, head_dim]
  std::vector<float> v;  ///< [batch, kv_heads, seqlen_k, head_dim]
};

/// O and the log-sum-exp on the host, O decoded to float.
struct Outputs {
  std::vector<float> o;    ///< [batch, heads, seqlen_q, head_dim]
  std::vector<float> lse;  ///< [batch, heads, seqlen_q]
};

/// The values in the encoding of `type`, rounded to nearest even.
std::vector<std::byte> encode(DType type, std::span<const float> values);

/// The values behind an encoding of `type`. `bytes.size()` is a multiple of the element's size.
std::vector<float> decode(DType type, std::span<const std::byte> bytes);

/// Rounds every value to `type` in place.
void round_to(DType type, std::span<float> values);

}  // namespace flashbook
