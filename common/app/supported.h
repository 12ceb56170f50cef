// What each step of each chapter accepts, from the chapters' own tables: written by tests/library
// (Supported.Table), do not edit.
#pragma once
#include <array>

#include "common/attention/operation.h"
#include "common/features/definition.h"

namespace flashbook {

/// A step, and the features that it accepts or needs.
struct Supported {
  int chapter, step;
  Operation operation;
  Features features;
};

inline constexpr auto kSupported = [] {
  using enum Feature;
  using enum Operation;
  return std::to_array<Supported>({
      {1, 1, forward, float32 | causal},
      {1, 2, forward, float32 | causal},
      {1, 3, forward, float32 | causal},
      {1, 4, forward, float32 | causal},
      {1, 5, forward, causal},
      {2, 1, forward, float32 | causal},
      {2, 2, forward, float32 | causal},
      {2, 3, forward, float32 | causal},
      {2, 4, forward, float32 | causal},
      {2, 5, forward, float32 | causal},
      {3, 1, forward, causal},
      {3, 2, forward, causal},
      {3, 3, forward, causal},
      {4, 1, forward, causal},
      {4, 2, forward, causal},
      {4, 3, forward, causal},
      {4, 4, forward, causal},
      {4, 5, forward, causal},
      {4, 6, forward, causal},
      {5, 1, forward, any_head_dim | strides | causal},
      {5, 2, forward, any_head_dim | strides | causal},
      {5, 3, forward, any_head_dim | strides | causal},
      {5, 4, forward, any_head_dim | strides | causal},
      {5, 5, forward, any_head_dim | strides | causal},
      {6, 1, forward, e4m3 | strides | causal},
      {6, 2, forward, e4m3 | strides | causal},
      {6, 3, forward, e4m3 | block_scales | strides | causal},
      {6, 4, forward, e4m3 | block_scales | strides | causal},
      {6, 5, forward, e4m3 | strides | causal},
      {6, 6, forward, e4m3 | strides | causal},
      {6, 7, forward, e4m3 | strides | causal},
      {6, 8, forward, e4m3 | strides | causal},
      {6, 9, forward, e4m3 | block_scales | strides | causal},
      {7, 1, backward, strides | causal},
      {7, 2, backward, strides | causal},
      {7, 3, backward, any_head_dim | strides | causal},
      {7, 4, backward, any_head_dim | strides | causal},
      {7, 5, backward, any_head_dim | strides | causal},
      {7, 6, backward, any_head_dim | strides | causal},
      {8, 1, decode, strides | causal | lengths | unsplit},
      {8, 2, decode, strides | causal | lengths | unsplit},
      {8, 3, decode, strides | causal | lengths},
      {8, 4, decode,
       any_head_dim | strides | causal | window | lengths | softcap | alibi | sinks | paddings |
           packed_queries | unsplit},
      {8, 5, decode,
       any_head_dim | strides | causal | window | lengths | softcap | alibi | sinks | pages | paddings |
           packed_queries | unsplit},
      {8, 6, decode,
       any_head_dim | strides | causal | window | lengths | softcap | alibi | sinks | pages | paddings |
           packed_queries | unsplit},
      {8, 7, decode, latent | strides | causal | lengths | pages},
      {8, 8, decode, block_scales | e4m3_cache | strides | causal | lengths | pages | unsplit},
      {8, 9, decode,
       any_head_dim | strides | causal | window | lengths | softcap | alibi | sinks | pages | paddings |
           packed_queries | unsplit},
      {8, 10, decode,
       any_head_dim | strides | causal | window | lengths | softcap | alibi | sinks | pages | paddings |
           packed_queries | unsplit},
      {9, 1, forward, any_head_dim | strides | causal | window | sink_keys | prefix | documents | pairs},
      {9, 2, forward, any_head_dim | strides | causal | window | sink_keys | prefix | documents},
      {9, 3, forward, any_head_dim | strides | causal | window | sink_keys | prefix | documents},
      {9, 4, forward, any_head_dim | strides | causal | window | sink_keys | prefix | documents | intervals},
      {9, 5, forward,
       any_head_dim | strides | causal | window | sink_keys | prefix | documents | blocks | softcap | alibi |
           bias | dropout},
      {9, 6, backward,
       any_head_dim | strides | causal | window | sink_keys | prefix | documents | intervals | blocks |
           pairs | softcap | alibi | bias | dropout},
      {9, 7, backward,
       any_head_dim | strides | causal | window | sink_keys | prefix | documents | intervals | blocks |
           pairs | softcap | alibi | bias | dropout},
      {9, 8, decode, any_head_dim | strides | causal | window | lengths | pages | packed_queries | unsplit},
      {10, 1, forward, causal | documents | ranks},
      {10, 2, forward, causal | ranks | token_order},
      {10, 3, forward, causal | ranks | token_order},
      {10, 4, forward, causal | documents | ranks | token_order},
      {10, 5, forward, causal | documents | ranks},
      {10, 6, backward, causal | documents | ranks | token_order},
      {10, 7, decode, causal | ranks},
  });
}();

}  // namespace flashbook
