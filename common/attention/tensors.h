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
  const void* q = nullptr;         ///< [batch, heads, seqlen_q, head_dim], Shape::dtype
  const void* k = nullptr;         ///< [batch, kv_heads, seqlen_k, head_dim], Shape::dtype
  const void* v = nullptr;         ///< [batch, kv_heads, seqlen_k, head_dim], Shape::dtype
  void* o = nullptr;               ///< [batch, heads, seqlen_q, head_dim], output_type(Shape::dtype)
  float* lse = nullptr;            ///< [batch, heads, seqlen_q], natural log-sum-exp of the scaled scores
  void* workspace = nullptr;       ///< the bytes the chapter asked for, or null if it asked for none
  const float* q_scale = nullptr;  ///< [Shape::q_scales], finite and > 0; e4m3 only. Null: all are 1
  const float* k_scale = nullptr;  ///< [Shape::k_scales], likewise
  const float* v_scale = nullptr;  ///< [Shape::k_scales], likewise
};

/// Q, K and V on the host as float, each value already rounded to Shape::dtype (e4m3: times its scale), so
/// that every machine and the oracle start from the same numbers.
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

/// One tensor as a machine is given it.
struct Encoded {
  std::vector<std::byte> bytes;
  std::vector<float> scales;  ///< of e4m3; else none
};

/// Q, K and V as a machine is given them.
struct EncodedInputs {
  Encoded q, k, v;
};

/// Encodes inputs. e4m3: the scale is the smallest power of two with which the largest of the elements that
/// share it is at most 448. A power of two rounds nothing away, so quantised inputs encode to themselves, and
/// they are values of bf16 too.
EncodedInputs encode_inputs(const Shape& shape, const Inputs& inputs);

/// Rounds inputs to what their encoding stands for.
void round_inputs(const Shape& shape, Inputs& inputs);

}  // namespace flashbook
