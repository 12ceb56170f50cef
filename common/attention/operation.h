/// \file
/// What a chapter computes, and of which tensors.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/attention/shape.h"

namespace flashbook {

enum class Operation {
  forward,   ///< O and the log-sum-exp of Q, K and V
  backward,  ///< dQ, dK and dV of Q, K, V, O, the log-sum-exp and dO
  decode     ///< forward of a few queries against a cache: K and V are pages
};

/// "forward", "backward", "decode": as in the names of results.
std::string_view name_of(Operation operation);

enum class Role { input, output };

/// A tensor of an operation.
struct TensorSpec {
  TensorId id;
  std::string_view name;  ///< of files, options and messages: "q", "lse", "do", "dq"
  Role role;
};

/// The operation's tensors, inputs first.
std::span<const TensorSpec> tensors_of(Operation operation);

/// "q", "lse", "do".
std::string_view name_of(TensorId id);

/// As text names it: "Q", "log-sum-exp", "dO".
std::string_view title_of(TensorId id);

/// How many elements a row of the tensor has: head_dim, of O and V value_dim, of the log-sum-exp 1.
int columns_of(const Shape& shape, TensorId id);

/// Whether the tensor has elements of its own. V of latent attention has none: it is the first columns of K.
bool is_stored(const Shape& shape, TensorId id);

/// The tensor's extents: [batch, heads, seqlen, columns], of the log-sum-exp [batch, heads, seqlen_q], of
/// paged K and V [pages, kv_heads, rows of a page, columns].
std::vector<int64_t> dims_of(const Shape& shape, TensorId id);

/// The product of its extents; 0 of what is not stored.
int64_t elements_of(const Shape& shape, TensorId id);

/// Its element type: Shape::dtype for inputs (except an e4m3 cache) and gradients, output_type for O and dO,
/// f32 for the log-sum-exp.
DType type_of(const Shape& shape, TensorId id);

}  // namespace flashbook
