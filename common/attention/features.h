/// \file
/// The features that a problem may have beyond its sizes, by name. A step declares those that its kernel
/// knows; all others are refused.
#pragma once
#include <cstdint>

#include "common/attention/shape.h"

namespace flashbook {

enum class Feature {
  float32,         ///< tensors in f32; f16 and bf16 need no feature
  e4m3,            ///< tensors in e4m3, with scales
  block_scales,    ///< Scaling::block
  latent,          ///< Shape::is_latent
  e4m3_cache,      ///< Shape::e4m3_cache
  any_head_dim,    ///< head dimensions other than 64, 128 and 256
  strides,         ///< a Layout other than the default
  causal,          ///< a window of all keys up to a query's own
  window,          ///< any other window
  sink_keys,       ///< Window::sinks
  prefix,          ///< Visibility::prefix
  lengths,         ///< Visibility::lengths
  documents,       ///< Visibility::documents
  intervals,       ///< Visibility::columns
  blocks,          ///< Visibility::blocks
  pairs,           ///< Visibility::dense
  softcap,         ///< ScoreFunction::softcap
  alibi,           ///< ScoreFunction::alibi
  bias,            ///< ScoreFunction::bias
  sinks,           ///< ScoreFunction::sinks
  dropout,         ///< ScoreFunction::dropout
  pages,           ///< Paging::rows
  paddings,        ///< Paging::padded
  packed_queries,  ///< Shape::packed_queries
  unsplit,         ///< Shape::unsplit
  ranks,           ///< several GPUs
  token_order,     ///< a TokenOrder other than contiguous
  unknown          ///< the first place behind the known ones
};

/// A set of features.
class Features {
 public:
  constexpr Features() = default;
  constexpr Features(Feature one) : bits_(uint64_t(1) << int(one)) {}  // NOLINT: a feature is a set of one
  /// All that are known.
  static constexpr Features every() { return from((uint64_t(1) << int(Feature::unknown)) - 1); }

  constexpr bool empty() const { return bits_ == 0; }
  /// Whether all of `other` are among these.
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

/// How messages speak of a feature.
struct FeatureText {
  const char* name;    ///< the enumerator's
  const char* plural;  ///< "windows"
  const char* cure;    ///< "leave them out"
};
FeatureText text_of(Feature feature);

/// The features that a problem has. A member of Shape, or of a part of it, that no feature covers does not
/// compile here.
Features features_of(const Shape& shape);

}  // namespace flashbook
