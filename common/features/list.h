/// \file
/// The list of features: what a problem may have beyond its sizes. A feature's folder contains the rest
/// (definition.h). To add one, give it a row of FLASHBOOK_FEATURES and, if it has data, a member below.
#pragma once
#include <cstdint>

#include "common/features/array.h"
#include "common/features/bias/bias.h"
#include "common/features/blocks/blocks.h"
#include "common/features/indices/indices.h"
#include "common/features/intervals/intervals.h"
#include "common/features/pairs/pairs.h"
#include "common/features/sequences/sequences.h"
#include "common/features/window/window.h"

namespace flashbook {

/// Every feature by name, in the order in which messages and descriptions list them.
#define FLASHBOOK_FEATURES(ROW)                                          \
  ROW(float32)        /* tensors in f32; f16 and bf16 need no feature */ \
  ROW(e4m3)           /* tensors in e4m3, with scales */                 \
  ROW(block_scales)   /* Scaling::block */                               \
  ROW(latent)         /* Sizes::is_latent */                             \
  ROW(e4m3_cache)     /* E4m3::cache */                                  \
  ROW(any_head_dim)   /* head dimensions other than 64, 128 and 256 */   \
  ROW(value_dim)      /* values that are wider or narrower than keys */  \
  ROW(causal)         /* a window of all keys up to a query's own */     \
  ROW(window)         /* any other window */                             \
  ROW(sink_keys)      /* Window::sinks */                                \
  ROW(prefix)         /* Visibility::prefix */                           \
  ROW(lengths)        /* Visibility::lengths */                          \
  ROW(documents)      /* Visibility::documents */                        \
  ROW(blocks)         /* Visibility::blocks */                           \
  ROW(intervals)      /* Visibility::columns */                          \
  ROW(pairs)          /* Visibility::dense */                            \
  ROW(softcap)        /* ScoreFunction::softcap */                       \
  ROW(alibi)          /* ScoreFunction::alibi */                         \
  ROW(bias)           /* ScoreFunction::bias */                          \
  ROW(sinks)          /* ScoreFunction::sinks */                         \
  ROW(dropout)        /* ScoreFunction::dropout */                       \
  ROW(indices)        /* Visibility::indices */                          \
  ROW(paddings)       /* Paging::paddings */                             \
  ROW(pages)          /* Paging::rows */                                 \
  ROW(packed_queries) /* Batching::packed_queries */                     \
  ROW(unsplit)        /* Batching::unsplit */                            \
  ROW(ranks)          /* several GPUs */                                 \
  ROW(token_order)    /* a TokenOrder other than contiguous */           \
  ROW(strides)        /* a Layout other than the default */

enum class Feature {
#define FLASHBOOK_ROW(name) name,
  FLASHBOOK_FEATURES(FLASHBOOK_ROW)
#undef FLASHBOOK_ROW
      unknown  ///< one past the last known feature
};

/// Which keys a query may see. Every part that is given is a restriction; a pair is visible if all parts
/// allow it. The default is full attention.
struct Visibility {
  Window window = {};
  int prefix = 0;           ///< leading keys that every query sees regardless of the window
  Array<int> lengths = {};  ///< [batch], the number of keys of each sequence, at most seqlen_k; windows are
                            ///< aligned to the last key. Empty: all have seqlen_k
  Documents documents = {};
  Columns columns = {};
  Blocks blocks = {};
  Dense dense = {};
  Indices indices = {};

  static Visibility causal() { return {.window = {.right = 0}}; }
  static Visibility causal_if(bool causal) { return causal ? Visibility::causal() : Visibility{}; }

  bool is_full() const { return *this == Visibility{}; }
  bool is_causal() const { return *this == causal(); }

  bool operator==(const Visibility&) const = default;
};

/// Functions applied to the scores s = scale * q k, in this order. The default leaves the scores unchanged.
struct ScoreFunction {
  float softcap = 0;  ///< c: s becomes c * tanh(s / c). 0: no cap
  /// ALiBi's slopes, [heads] or [sequences, heads]: slope * |i + seqlen_k - seqlen_q - j| is subtracted from
  /// query i's score of key j. A sequence is a document if there are any, otherwise a batch entry; distances
  /// are measured within it. Empty: none.
  Array<float> alibi = {};
  RelativeBias bias = {};  ///< measures distances like ALiBi
  /// A score for each head that belongs to no key (gpt-oss): e^sink is added to every row's sum and
  /// contributes no value. [heads], -inf: none. Empty: none. These differ from the sinks of Window, which are
  /// keys.
  Array<float> sinks = {};
  /// The fraction of the probabilities that is dropped (dropout.h), 0 to 1: O is the sum over the others,
  /// times 1 / (1 - dropout). The log-sum-exp includes all probabilities. 0: none.
  float dropout = 0;
  uint64_t seed = 0;  ///< seed of the dropout

  bool operator==(const ScoreFunction&) const = default;
};

/// If this no longer compiles, there is a new member: name it here once a feature above covers it.
inline void every_member_has_a_feature(const Visibility& visibility, const ScoreFunction& score) {
  [[maybe_unused]] const auto& [window, prefix, lengths, documents, columns, blocks, dense, indices] =
      visibility;
  [[maybe_unused]] const auto& [softcap, alibi, bias, sinks, dropout, seed] = score;
}

class Features {
 public:
  constexpr Features() = default;
  constexpr Features(Feature one) : bits_(uint64_t(1) << int(one)) {}  // NOLINT: a feature is a set of one
  /// All known features.
  static constexpr Features every() { return from((uint64_t(1) << int(Feature::unknown)) - 1); }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool has(Features other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr Features operator|(Features other) const { return from(bits_ | other.bits_); }
  constexpr Features operator&(Features other) const { return from(bits_ & other.bits_); }
  constexpr Features operator-(Features other) const { return from(bits_ & ~other.bits_); }
  constexpr bool operator==(const Features&) const = default;

 private:
  static constexpr Features from(uint64_t bits) {
    Features of;
    of.bits_ = bits;
    return of;
  }
  uint64_t bits_ = 0;
};
constexpr Features operator|(Feature a, Feature b) { return Features(a) | Features(b); }

}  // namespace flashbook
