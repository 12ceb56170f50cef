/// \file
/// An attention problem: its sizes and its features.
#pragma once
#include <cstdint>
#include <string>

#include "common/attention/layout.h"
#include "common/attention/sizes.h"
#include "common/attention/visibility.h"
#include "common/features/batching/batching.h"
#include "common/features/list.h"
#include "common/features/pages/paging.h"
#include "common/features/ranks/sharding.h"
#include "common/features/types/e4m3.h"
#include "common/numeric/arithmetic.h"

namespace flashbook {

/// The specification of an attention problem: its sizes, and the parameters of its features. By default it
/// has none of the features that common/features/list.h lists.
struct Spec : Sizes {
  Visibility visibility = {};  ///< which keys a query sees
  ScoreFunction score = {};    ///< changes to the scores before the softmax and the probabilities after it
  E4m3 e4m3 = {};              ///< scales and means of tensors in e4m3
  Layout layout = {};          ///< positions of the tensors' elements
  Paging paging = {};          ///< keys and values in pages
  Batching batching = {};      ///< how a batch's sequences share a launch
  Sharding sharding = {};      ///< the GPUs that share the tokens

  bool has_latent_rows_in_e4m3() const { return is_latent() && e4m3.cache; }  ///< K has kLatentRowBytes
  bool causal() const { return visibility.is_causal(); }
  bool is_default_layout() const { return layout == Layout{}; }
  /// Returns strides of a tensor with rows of head_dim or value_dim elements, never zero.
  Strides strides(TensorId id) const;

  /// Returns the number of keys of a sequence, and the number of pages for seqlen_k keys.
  int length_of(int batch) const {
    const Array<int>& lengths = visibility.lengths;
    return lengths.empty() || lengths.is_on_device() ? seqlen_k : lengths[std::size_t(batch)];
  }
  int pages_of_sequence() const { return int(ceil_div(int64_t(seqlen_k), paging.rows)); }
  /// Returns the number of keys that query row `query` sees if all are visible or the mask is causal: keys 0
  /// ... visible_keys - 1.
  int visible_keys(int query) const;

  /// Returns the number of scales of Q: [1], [batch, kv_heads] or [batch, heads, blocks of 64 rows].
  int64_t q_scales() const { return q_scale_of(q_rows() - 1) + 1; }
  /// Returns the number of scales of K, and of V: [1], [batch, kv_heads] or [batch, kv_heads, blocks of 128
  /// rows]. With pages, scales by block are [pages, kv_heads], and those by head are the same for all
  /// sequences, which may share pages.
  int64_t k_scales() const;
  int64_t q_scale_of(int64_t row) const;  ///< index of the scale of a row of Q
  int64_t k_scale_of(int64_t row) const;  ///< index of the scale of a row of K or V

  bool operator==(const Spec&) const = default;
};

/// Returns `spec` with latent keys instead of its own, one head for all query heads.
Spec with_latent_keys(Spec spec);

/// Returns `spec` with keys and values in e4m3, with a scale per head.
Spec with_e4m3_cache(Spec spec);

/// Throws InputError with the first reason why no chapter could run this problem, naming the option to
/// change. Valid: every count >= 1, kv_heads divides heads, head_dim a multiple of 8 up to 256, or 576, scale
/// finite and > 0, at most 2^40 elements per tensor, and features that fit these sizes.
void validate(const Spec& spec);

/// Returns a report's text: "batch 1, heads 16 (4 key heads), N 4096 x 1000, d 128, causal, bf16".
std::string describe(const Spec& spec);

}  // namespace flashbook
