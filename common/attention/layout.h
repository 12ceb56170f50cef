/// \file
/// The positions of a tensor's elements in memory.
#pragma once
#include <cstdint>
#include <span>

namespace flashbook {

struct Spec;

/// The tensors of attention and of its gradient.
enum class TensorId { q, k, v, o, lse, d_o, dq, dk, dv };

/// Distances in elements to the next batch entry (for paged K and V: the next page), head and row. The
/// elements of a row are contiguous.
struct Strides {
  int64_t batch = 0, head = 0, row = 0;

  bool operator==(const Strides&) const = default;
};

/// The strides of each tensor. {0, 0, 0} means the default, [batch, heads, seqlen, head_dim] without gaps,
/// which the log-sum-exp, [batch, heads, seqlen_q], always has.
struct Layout {
  Strides q = {}, k = {}, v = {}, o = {}, d_o = {}, dq = {}, dk = {}, dv = {};

  const Strides& of(TensorId id) const;
  bool operator==(const Layout&) const = default;
};

/// Returns strides of [batch, seqlen, heads, head_dim] without gaps for each tensor, PyTorch's usual layout.
Layout layout_bshd(const Spec& spec);

/// Returns a layout in which Q, K and V are slices of one tensor [batch, seqlen, heads + 2 * kv_heads,
/// head_dim], which is [batch, seqlen, 3, heads, head_dim] if heads == kv_heads; the same holds for their
/// gradients. O and dO are as in layout_bshd. Requires seqlen_q == seqlen_k.
Layout layout_packed_qkv(const Spec& spec);

/// Returns the number of elements in a row in memory: columns_of, except that a latent key in e4m3 has
/// kLatentRowBytes, of which not all are elements.
int stored_columns(const Spec& spec, TensorId id);

/// Returns the number of elements in a buffer from a tensor's first element to its last.
int64_t elements_spanned(const Spec& spec, TensorId id);

/// Copies a tensor from the default layout to the problem's strides. `from` has the tensor's elements, `to`
/// elements_spanned; elements between rows keep their values. `element_bytes` is the size of an element.
void scatter(const Spec& spec, TensorId id, std::span<const std::byte> from, std::span<std::byte> to,
             std::size_t element_bytes);

/// Does the reverse of scatter.
void gather(const Spec& spec, TensorId id, std::span<const std::byte> from, std::span<std::byte> to,
            std::size_t element_bytes);

/// Throws InputError if a tensor's strides cannot be used, and names the tensor and the fix. Strides must be
/// multiples of 16 bytes, no two rows may overlap, and a tensor may span at most 2^40 elements.
void validate_layout(const Spec& spec);

}  // namespace flashbook
