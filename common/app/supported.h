// Which chapters and steps support what, from their own tables: written by tests/library (Supported.Table),
// do not edit.
#pragma once
#include "common/attention/features.h"
#include "common/attention/operation.h"

namespace flashbook {

/// Where the steps of an operation accept a feature.
struct Supported {
  Operation operation;
  Feature feature;
  const char* where;  ///< "chapter 8 (steps 4 to 6) or chapter 9 (step 8)"
};

// clang-format off
inline constexpr Supported kSupported[] = {
    {Operation::forward, Feature::float32, "chapter 1 (steps 1 to 4) or chapter 2"},
    {Operation::forward, Feature::e4m3, "chapter 6"},
    {Operation::forward, Feature::block_scales, "chapter 6 (steps 3 and 4)"},
    {Operation::forward, Feature::any_head_dim, "chapter 5 or chapter 9 (steps 1 to 5)"},
    {Operation::forward, Feature::strides, "chapter 5, chapter 6 or chapter 9 (steps 1 to 5)"},
    {Operation::forward, Feature::window, "chapter 9 (steps 1 to 5)"},
    {Operation::forward, Feature::sink_keys, "chapter 9 (steps 1 to 5)"},
    {Operation::forward, Feature::prefix, "chapter 9 (steps 1 to 5)"},
    {Operation::forward, Feature::documents, "chapter 9 (steps 1 to 5) or chapter 10 (steps 1, 4 and 5)"},
    {Operation::forward, Feature::intervals, "chapter 9 (step 4)"},
    {Operation::forward, Feature::blocks, "chapter 9 (step 5)"},
    {Operation::forward, Feature::pairs, "chapter 9 (step 1)"},
    {Operation::forward, Feature::softcap, "chapter 9 (step 5)"},
    {Operation::forward, Feature::alibi, "chapter 9 (step 5)"},
    {Operation::forward, Feature::bias, "chapter 9 (step 5)"},
    {Operation::forward, Feature::dropout, "chapter 9 (step 5)"},
    {Operation::forward, Feature::ranks, "chapter 10 (steps 1 to 5)"},
    {Operation::forward, Feature::token_order, "chapter 10 (steps 2 to 4)"},
    {Operation::backward, Feature::any_head_dim, "chapter 7 (steps 3 to 6) or chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::strides, "chapter 7 or chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::causal, "chapter 7, chapter 9 (steps 6 and 7) or chapter 10 (step 6)"},
    {Operation::backward, Feature::window, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::sink_keys, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::prefix, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::documents, "chapter 9 (steps 6 and 7) or chapter 10 (step 6)"},
    {Operation::backward, Feature::intervals, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::blocks, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::pairs, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::softcap, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::alibi, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::bias, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::dropout, "chapter 9 (steps 6 and 7)"},
    {Operation::backward, Feature::ranks, "chapter 10 (step 6)"},
    {Operation::backward, Feature::token_order, "chapter 10 (step 6)"},
    {Operation::decode, Feature::block_scales, "chapter 8 (step 8)"},
    {Operation::decode, Feature::latent, "chapter 8 (step 7)"},
    {Operation::decode, Feature::e4m3_cache, "chapter 8 (step 8)"},
    {Operation::decode, Feature::any_head_dim, "chapter 8 (steps 4 to 6, 9 and 10) or chapter 9 (step 8)"},
    {Operation::decode, Feature::strides, "chapter 8 or chapter 9 (step 8)"},
    {Operation::decode, Feature::causal, "chapter 8, chapter 9 (step 8) or chapter 10 (step 7)"},
    {Operation::decode, Feature::window, "chapter 8 (steps 4 to 6, 9 and 10) or chapter 9 (step 8)"},
    {Operation::decode, Feature::lengths, "chapter 8 or chapter 9 (step 8)"},
    {Operation::decode, Feature::softcap, "chapter 8 (steps 4 to 6, 9 and 10)"},
    {Operation::decode, Feature::alibi, "chapter 8 (steps 4 to 6, 9 and 10)"},
    {Operation::decode, Feature::sinks, "chapter 8 (steps 4 to 6, 9 and 10)"},
    {Operation::decode, Feature::pages, "chapter 8 (steps 5 to 10) or chapter 9 (step 8)"},
    {Operation::decode, Feature::paddings, "chapter 8 (steps 4 to 6, 9 and 10)"},
    {Operation::decode, Feature::packed_queries, "chapter 8 (steps 4 to 6, 9 and 10) or chapter 9 (step 8)"},
    {Operation::decode, Feature::unsplit, "chapter 8 (steps 1, 2, 4 to 6 and 8 to 10) or chapter 9 (step 8)"},
    {Operation::decode, Feature::ranks, "chapter 10 (step 7)"},
};
// clang-format on

}  // namespace flashbook
