/// \file
/// The operations that chapters compute, and their tensors.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/attention/spec.h"

namespace flashbook {

enum class Operation {
  forward,   ///< O and the log-sum-exp, from Q, K and V
  backward,  ///< dQ, dK and dV, from Q, K, V, O, the log-sum-exp and dO
  decode     ///< forward for a few queries against a cache: K and V are pages
};

/// Returns the name as in result names: "forward", "backward", "decode".
std::string_view name_of(Operation operation);

enum class Role { input, output };

struct TensorSpec {
  TensorId id;
  std::string_view name;  ///< name in files, options and messages: "q", "lse", "do", "dq"
  Role role;
};

/// Returns the operation's tensors, inputs first.
std::span<const TensorSpec> tensors_of(Operation operation);

/// Returns the short name: "q", "lse", "do".
std::string_view name_of(TensorId id);

/// Returns the name in text: "Q", "log-sum-exp", "dO".
std::string_view title_of(TensorId id);

/// Returns the elements per row of the tensor: head_dim, value_dim for V, O and their gradients, and 1 for
/// the log-sum-exp.
int columns_of(const Sizes& sizes, TensorId id);

/// Returns whether the tensor has its own elements. Latent attention's V is only columns of K.
bool is_stored(const Sizes& sizes, TensorId id);

/// Returns the tensor's sizes: [batch, heads, seqlen, columns]; for the log-sum-exp [batch, heads, seqlen_q];
/// for paged K and V [pages, kv_heads, rows per page, columns].
std::vector<int64_t> dims_of(const Spec& spec, TensorId id);

/// Returns the tensor's number of elements; 0 for a tensor that is not stored.
int64_t elements_of(const Spec& spec, TensorId id);

/// Returns the tensor's element type: Sizes::dtype for inputs (except an e4m3 cache) and gradients,
/// output_type for O and dO, f32 for the log-sum-exp.
DType type_of(const Spec& spec, TensorId id);

}  // namespace flashbook
