/// \file
/// The arguments of an attention function: pointers and, on the host, the values behind them.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "common/attention/operation.h"
#include "common/attention/spec.h"

namespace flashbook {

/// Arrays of a problem that kernels read: int, except for slopes, biases and sinks, which are float, and the
/// dense mask, which consists of bytes.
enum class TableId {
  page_table,      ///< Paging::table
  lengths,         ///< Visibility::lengths
  document_query,  ///< Documents::first_query
  document_key,    ///< Documents::first_key
  columns,         ///< Columns::queries
  block_first,     ///< Blocks::first
  block_keys,      ///< Blocks::key_blocks
  dense,           ///< Dense::visible
  slopes,          ///< ScoreFunction::alibi
  bias,            ///< RelativeBias::values
  sinks,           ///< ScoreFunction::sinks
  paddings,        ///< Paging::paddings
  indices          ///< Indices::keys
};
constexpr int kTables = 13;

/// Pointers to the tensors of one call, all in the memory of the machine that runs it. Their extents, types
/// and strides are given by dims_of, type_of and Spec::strides; tensors that the operation lacks are null.
struct Tensors {
  const void* q = nullptr;         ///< [batch, heads, seqlen_q, head_dim], Sizes::dtype
  const void* k = nullptr;         ///< [batch, kv_heads, seqlen_k, head_dim], Sizes::dtype; or pages
  const void* v = nullptr;         ///< like k; not read for latent attention
  void* o = nullptr;               ///< [batch, heads, seqlen_q, value_dim], output_type(Sizes::dtype)
  float* lse = nullptr;            ///< [batch, heads, seqlen_q], natural log-sum-exp of the scaled scores
  const void* d_o = nullptr;       ///< [batch, heads, seqlen_q, value_dim]; backward, where O is an input
  void* dq = nullptr;              ///< [batch, heads, seqlen_q, head_dim]
  void* dk = nullptr;              ///< [batch, kv_heads, seqlen_k, head_dim]
  void* dv = nullptr;              ///< [batch, kv_heads, seqlen_k, head_dim]
  const float* d_lse = nullptr;    ///< [batch, heads, seqlen_q], the log-sum-exp's gradient; null: all are 0
  float* d_bias = nullptr;         ///< [heads, 2 * reach + 1], for a problem with a bias; null: not computed
  void* workspace = nullptr;       ///< as many bytes as the step needs; null if it needs none
  const float* q_scale = nullptr;  ///< [Spec::q_scales], finite and > 0; e4m3 only. Null: all are 1
  const float* k_scale = nullptr;  ///< [Spec::k_scales], finite and > 0; e4m3 only. Null: all are 1
  const float* v_scale = nullptr;  ///< [Spec::k_scales], finite and > 0; e4m3 only. Null: all are 1
  const float* k_mean = nullptr;   ///< [batch, kv_heads, head_dim], column means; e4m3 only. Null: all are 0
  const float* v_mean = nullptr;   ///< like k_mean
  const void* tables[kTables] = {};  ///< by TableId; null if the problem has no such table

  void set(TensorId id, void* address);
};

/// An operation's inputs on the host as float, in the default layout, each value already rounded to its type
/// (for e4m3: times its scale, plus the mean of its column if the problem is mean-subtracted), so that every
/// machine and the oracle start from the same numbers.
struct Inputs {
  std::vector<float> q;           ///< [batch, heads, seqlen_q, head_dim]
  std::vector<float> k;           ///< [batch, kv_heads, seqlen_k, head_dim], or pages as dims_of says
  std::vector<float> v;           ///< like k; empty for latent attention
  std::vector<float> o = {};      ///< [batch, heads, seqlen_q, head_dim]; from here on, backward only
  std::vector<float> lse = {};    ///< [batch, heads, seqlen_q]
  std::vector<float> d_o = {};    ///< [batch, heads, seqlen_q, value_dim]
  std::vector<float> d_lse = {};  ///< [batch, heads, seqlen_q]; empty if the loss does not use it
  std::vector<float> k_mean =
      {};  ///< [batch, kv_heads, head_dim], of a mean-subtracted problem: what its encoding leaves out
  std::vector<float> v_mean = {};  ///< like k_mean

  std::vector<float>& operator[](TensorId id);
  const std::vector<float>& operator[](TensorId id) const;
  /// Returns the means of a tensor's columns; empty if its values include them.
  std::span<const float> means(TensorId id) const;
};

/// An operation's outputs on the host, decoded to float, in the default layout.
struct Outputs {
  std::vector<float> o;        ///< [batch, heads, seqlen_q, value_dim]; only for forward and decode
  std::vector<float> lse;      ///< [batch, heads, seqlen_q]
  std::vector<float> dq = {};  ///< [batch, heads, seqlen_q, head_dim]; from here on, backward only
  std::vector<float> dk = {};  ///< [batch, kv_heads, seqlen_k, head_dim]
  std::vector<float> dv = {};  ///< [batch, kv_heads, seqlen_k, head_dim]

  std::vector<float>& operator[](TensorId id);
  const std::vector<float>& operator[](TensorId id) const;
};

/// A table of a problem, in the form that is passed to a machine.
struct FeatureTable {
  TableId id;
  std::string_view name;  ///< "page_table"
  std::span<const std::byte> bytes;
};

/// Returns the tables of a problem: pages, lengths, documents, intervals, blocks, pairs, slopes and biases.
/// They point into the problem.
std::vector<FeatureTable> tables_of(const Spec& spec);

/// Returns the values encoded as `type`, rounded to nearest even.
std::vector<std::byte> encode(DType type, std::span<const float> values);

/// Returns the values encoded in `bytes`, whose size is a multiple of the size of an element of `type`.
std::vector<float> decode(DType type, std::span<const std::byte> bytes);

/// Rounds every value to `type` in place.
void round_to(DType type, std::span<float> values);

/// A tensor in the form that is passed to a machine.
struct Encoded {
  std::vector<std::byte> bytes;
  std::vector<float> scales;  ///< for e4m3, otherwise empty
};

/// Encodes an input in its type and with the problem's strides; bytes between rows are kPoison. For e4m3, see
/// encode_inputs. `means` are subtracted from each column first, [heads of the tensor, head_dim]; empty if
/// there are none.
Encoded encode_input(const Spec& spec, TensorId id, std::span<const float> values,
                     std::span<const float> means = {});

/// Returns the values of an output, from its bytes in the problem's strides.
std::vector<float> decode_output(const Spec& spec, TensorId id, std::span<const std::byte> bytes);

/// The byte of unwritten memory: with every byte 0xff, an element is NaN in f32, f16, bf16 and e4m3.
constexpr unsigned char kPoison = 0xff;

/// Q, K and V in the form that is passed to a machine.
struct EncodedInputs {
  Encoded q, k, v;
};

/// Encodes inputs. For e4m3, the scale is the smallest power of two with which the largest of the elements
/// that share it is at most 448, up to the rounding of a float. Scaling by a power of two is exact, so
/// quantised inputs encode to themselves, and they are also values of bf16.
EncodedInputs encode_inputs(const Spec& spec, const Inputs& inputs);

/// Rounds inputs to the values that their encoding represents. For a mean-subtracted problem, first computes
/// the means if the inputs have none yet.
void round_inputs(const Spec& spec, Inputs& inputs);

}  // namespace flashbook
