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
#include "common/numeric/arithmetic.h"
#include "common/numeric/dtype.h"

namespace flashbook {

/// A learned bias by distance, for each head (Shaw et al., arXiv 1803.02155; T5, arXiv 1910.10683, whose
/// buckets are runs of equal values).
struct RelativeBias {
  int reach = 0;                   ///< keys further away have the bias of the outermost
  std::vector<float> values = {};  ///< [heads, 2 * reach + 1]; empty: none

  /// The term added to the score of a key `distance` keys after the query's own.
  float at(int head, int64_t distance) const { return values[std::size_t(place(head, distance))]; }
  /// Its index among the values.
  int64_t place(int head, int64_t distance) const {
    return head * (2 * int64_t(reach) + 1) + std::clamp<int64_t>(distance, -reach, reach) + reach;
  }
  bool operator==(const RelativeBias&) const = default;
};

/// Functions on the scores s = scale * q k, in this order. The default leaves them as they are.
struct ScoreFunction {
  float softcap = 0;  ///< c: s becomes c * tanh(s / c). 0: no cap
  /// ALiBi's slopes, [heads] or [sequences, heads]: slope * |i + seqlen_k - seqlen_q - j| is taken from query
  /// i's score of key j. Documents are sequences, else batch entries are; it counts within them. Empty: none.
  std::vector<float> alibi = {};
  RelativeBias bias = {};  ///< counts distances as ALiBi does
  /// A score for each head that belongs to no key (gpt-oss): e^sink is a term of every row's sum, and brings
  /// no value. [heads], -inf: none. Empty: none. Other sinks are Window's, which are keys.
  std::vector<float> sinks = {};
  /// The part of the probabilities that is left out (dropout.h), 0 to 1: O is a sum over the others, times
  /// 1 / (1 - dropout). The log-sum-exp is that of all. 0: none.
  float dropout = 0;
  uint64_t seed = 0;  ///< of the dropout

  bool operator==(const ScoreFunction&) const = default;
};

/// Which elements of an e4m3 tensor share a scale, the factor that their encodings are multiplied by.
enum class Scaling {
  tensor,  ///< all
  head,    ///< those of a key head, and the queries that read it
  block    ///< 64 rows of Q, 128 rows of K or V; of pages each head's part of a page
};

constexpr int kQueriesOfScale = 64;  ///< rows of Q that share a scale in Scaling::block
constexpr int kKeysOfScale = 128;    ///< rows of K, and of V

/// The name used on the command line: "tensor", "head", "block".
std::string name_of(Scaling scaling);

/// How tokens are dealt out to the GPUs among which they are divided (chapter 10's tokens.cuh).
enum class TokenOrder { contiguous, zigzag, striped };

/// The name used on the command line: "contiguous", "zigzag", "striped".
std::string name_of(TokenOrder order);

/// Keys and values in pages of a few rows each, in any order: [pages, kv_heads, rows, head_dim].
struct Paging {
  int rows = 0;   ///< of a page. 0: K and V are not paged
  int pages = 0;  ///< how many there are, in use or not
  std::vector<int> table =
      {};               ///< [batch, ceil(seqlen_k / rows)]: which page has a sequence's next rows. What
                        ///< lies beyond a sequence's length is never read, the table's entries neither
  int shared = 0;       ///< keys of a prefix that all sequences share, whole pages: every sequence has all of
                        ///< them, and they lie in the same pages. A kernel may read them once
  bool padded = false;  ///< a caller's table says how many rows lie before a sequence's first key. There are
                        ///< pages of whole sequences then, or none. Oracle and cost do not know of it

  bool operator==(const Paging&) const = default;
};

/// Latent attention (DeepSeek-V2, arXiv 2405.04434): a key of 576 elements, whose first 512 are the value.
/// head_dim is 576, and V is no tensor of its own.
constexpr int kLatentKeyDim = 576, kLatentValueDim = 512;

/// One attention problem. Tensors are `[batch, heads, seqlen, head_dim]`: Q and O have `heads` and
/// `seqlen_q`, K and V have `kv_heads` and `seqlen_k`. The log-sum-exp is a number per row of O. `layout`
/// says where the elements lie.
struct Shape {
  int batch = 1;
  int heads = 1;     ///< query heads
  int kv_heads = 1;  ///< divides heads; query head h reads key head h / (heads / kv_heads)
  int seqlen_q = 1;
  int seqlen_k = 1;
  int head_dim = 64;  ///< a multiple of 8 up to 256, or of latent attention kLatentKeyDim
  Visibility visibility = {};
  DType dtype = DType::bf16;
  float scale = 0.125f;     ///< factor on the scores; by default 1 / sqrt(head_dim)
  bool e4m3_cache = false;  ///< K and V are e4m3, whatever dtype says of Q and O: an operation that decodes
  Scaling scaling = Scaling::tensor;  ///< of e4m3; other types have no scales
  /// e4m3: K and V are stored without the means of their columns, which are tensors of their own.
  bool mean_subtracted = false;
  ScoreFunction score = {};
  Layout layout = {};
  Paging paging = {};
  /// How many queries all sequences have together, if each has a number of its own, up to seqlen_q: a
  /// caller's table says where they begin. Q and O are [queries, heads] or the reverse by strides of heads
  /// and rows, the log-sum-exp is [heads, queries]. 0: all have seqlen_q. Oracle and cost do not know of it.
  int packed_queries = 0;
  /// No block shares a sequence's keys with another, so that a sequence's result has the same bits alone and
  /// in any batch. A step that decodes may then leave multiprocessors idle.
  bool unsplit = false;
  int ranks = 1;  ///< GPUs among which the tokens are divided; the tensors above are those of all together
  std::optional<TokenOrder> order = {};  ///< which tokens each of them has. None: as the step has it

  bool is_latent() const { return head_dim == kLatentKeyDim; }                ///< V is the first columns of K
  int value_dim() const { return is_latent() ? kLatentValueDim : head_dim; }  ///< columns of V and of O

  /// Keys of a sequence, and the pages that seqlen_k takes.
  int length_of(int batch) const { return visibility.lengths.empty() ? seqlen_k : visibility.lengths[batch]; }
  int pages_of_sequence() const { return int(ceil_div(int64_t(seqlen_k), paging.rows)); }

  bool causal() const { return visibility.is_causal(); }
  bool is_default_layout() const { return layout == Layout{}; }
  /// Strides of a tensor with rows of head_dim or value_dim elements, never zero.
  Strides strides(TensorId id) const;

  int64_t q_rows() const { return int64_t(batch) * heads * seqlen_q; }     ///< rows of Q, O and log-sum-exp
  int64_t k_rows() const { return int64_t(batch) * kv_heads * seqlen_k; }  ///< rows of K and of V
  int64_t q_elements() const { return q_rows() * head_dim; }               ///< elements of Q
  int64_t k_elements() const { return k_rows() * head_dim; }               ///< elements of K
  /// Columns of K and of V, over batch and heads: their means are [batch, kv_heads, head_dim].
  int64_t k_columns() const { return int64_t(batch) * kv_heads * head_dim; }

  /// How many scales Q has: [1], [batch, kv_heads] or [batch, heads, blocks of 64 rows].
  int64_t q_scales() const { return q_scale_of(q_rows() - 1) + 1; }
  /// How many scales K has, and V: [1], [batch, kv_heads] or [batch, kv_heads, blocks of 128 rows]. With
  /// pages, scales by block are [pages, kv_heads], and those by head are the same for all sequences, which
  /// may share pages.
  int64_t k_scales() const;
  int64_t q_scale_of(int64_t row) const;  ///< which scale a row of Q has
  int64_t k_scale_of(int64_t row) const;  ///< which scale a row of K or V has; of heads of pages the first

  /// How many keys query row `query` sees if all are visible or the mask is causal: keys 0 ...
  /// visible_keys - 1. Zero if it sees none.
  int visible_keys(int query) const;

  bool operator==(const Shape&) const = default;
};

/// The softmax scale of the papers, 1 / sqrt(head_dim).
float default_scale(int head_dim);

/// `shape` with latent keys in the place of its own: one head of them for all query heads.
Shape with_latent_keys(Shape shape);

/// `shape` with keys and values in e4m3, a scale for each head.
Shape with_e4m3_cache(Shape shape);

/// Throws InputError with the first reason why no chapter could run this shape, naming the option that cures
/// it. Valid: every count >= 1, kv_heads divides heads, head_dim a multiple of 8 up to 256, or 576, scale
/// finite and > 0, at most 2^40 elements a tensor, and a visibility, a score function, a layout and pages
/// that fit these numbers.
void validate(const Shape& shape);

/// "batch 1, heads 16 (4 key heads), N 4096 x 1000, d 128, causal, bf16": what a report prints.
std::string describe(const Shape& shape);

}  // namespace flashbook
