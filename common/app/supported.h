// What the steps of each chapter accept, from the chapters' own tables: written by tests/library
// (Supported.Table), do not edit.
#pragma once
#include <array>

#include "common/attention/operation.h"
#include "common/features/definition.h"

namespace flashbook {

/// A chapter, and the features that its steps for an operation accept or need.
struct Supported {
  int chapter;
  Operation operation;
  Features features;
};

inline constexpr auto kSupported = [] {
  using enum Feature;
  using enum Operation;
  return std::to_array<Supported>({
      {1, forward, float32 | causal},
      {2, forward, float32 | causal},
      {3, forward, causal},
      {4, forward, causal},
      {5, forward, any_head_dim | causal | strides},
      {6, forward, e4m3 | block_scales | causal | strides},
      {7, backward, any_head_dim | causal | strides},
      {8, decode,
       block_scales | latent | e4m3_cache | any_head_dim | causal | window | lengths | softcap | alibi |
           sinks | indices | paddings | pages | packed_queries | unsplit | strides},
      {9, forward,
       any_head_dim | value_dim | causal | window | sink_keys | prefix | documents | blocks | intervals |
           pairs | softcap | alibi | bias | dropout | strides},
      {9, backward,
       any_head_dim | value_dim | causal | window | sink_keys | prefix | documents | blocks | intervals |
           pairs | softcap | alibi | bias | dropout | strides},
      {9, decode, any_head_dim | causal | window | lengths | pages | packed_queries | unsplit | strides},
      {10, forward, causal | documents | ranks | token_order},
      {10, backward, causal | documents | ranks | token_order},
      {10, decode, causal | ranks},
  });
}();

}  // namespace flashbook
