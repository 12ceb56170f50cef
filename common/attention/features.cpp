#include "common/attention/features.h"

namespace flashbook {

FeatureText text_of(Feature feature) {
  constexpr const char* kLeaveOut = "leave them out";
  switch (feature) {
    case Feature::float32:
      return {"float32", "float32 tensors", "give f16 or bf16"};
    case Feature::e4m3:
      return {"e4m3", "e4m3 tensors", "give f16 or bf16"};
    case Feature::block_scales:
      return {"block_scales", "scales by block", "give a scale for each tensor or head"};
    case Feature::latent:
      return {"latent", "latent keys (head dimension 576)", "give a head dimension of 64, 128 or 256"};
    case Feature::e4m3_cache:
      return {"e4m3_cache", "caches in e4m3", "give a cache of 16 bits"};
    case Feature::any_head_dim:
      return {"any_head_dim", "head dimensions other than 64, 128 and 256", "give one of the three"};
    case Feature::strides:
      return {"strides", "layouts other than [batch, heads, seqlen, head_dim]",
              "copy the tensors to that layout"};
    case Feature::causal:
      return {"causal", "causal masks", kLeaveOut};
    case Feature::window:
      return {"window", "windows", kLeaveOut};
    case Feature::sink_keys:
      return {"sink_keys", "windows with sink keys", kLeaveOut};
    case Feature::prefix:
      return {"prefix", "prefixes", kLeaveOut};
    case Feature::lengths:
      return {"lengths", "sequences of different lengths in a batch", "give them one length"};
    case Feature::documents:
      return {"documents", "packed documents", kLeaveOut};
    case Feature::intervals:
      return {"intervals", "masks of intervals by key", kLeaveOut};
    case Feature::blocks:
      return {"blocks", "lists of visible blocks", kLeaveOut};
    case Feature::pairs:
      return {"pairs", "masks pair by pair", kLeaveOut};
    case Feature::softcap:
      return {"softcap", "softcaps", kLeaveOut};
    case Feature::alibi:
      return {"alibi", "ALiBi slopes", kLeaveOut};
    case Feature::bias:
      return {"bias", "biases by distance", kLeaveOut};
    case Feature::sinks:
      return {"sinks", "sink logits", kLeaveOut};
    case Feature::dropout:
      return {"dropout", "dropout", "give 0"};
    case Feature::pages:
      return {"pages", "pages", "give keys and values of one piece a sequence"};
    case Feature::paddings:
      return {"paddings", "paddings before a sequence's first key", kLeaveOut};
    case Feature::packed_queries:
      return {"packed_queries", "packed queries against a cache", "give every sequence as many"};
    case Feature::unsplit:
      return {"unsplit", "results that are the same in any batch (one split)", "let it choose the splits"};
    case Feature::ranks:
      return {"ranks", "several GPUs", "give one, and no order of tokens"};
    case Feature::token_order:
      return {"token_order", "zigzag or striped tokens", "divide them contiguously"};
    case Feature::unknown:
      break;
  }
  return {"unknown", "a feature that no step declares", kLeaveOut};
}

Features features_of(const Shape& shape) {
  // If one of these lines no longer compiles, a member is new: say below which feature it belongs to.
  const auto& [batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, visibility, dtype, scale, e4m3_cache,
               scaling, mean_subtracted, score, layout, paging, packed_queries, unsplit, rank_count, order] =
      shape;
  const auto& [window, prefix, lengths, documents, columns, blocks, dense] = visibility;
  const auto& [left, right, sink_keys] = window;
  const auto& [softcap, alibi, bias, sinks, dropout, seed] = score;
  const auto& [page_rows, pages, table, shared, padded] = paging;

  Features all;
  const auto has = [&](Feature feature, bool present) {
    if (present) all = all | feature;
  };
  has(Feature::float32, dtype == DType::f32);
  has(Feature::e4m3, dtype == DType::e4m3);
  has(Feature::block_scales, scaling == Scaling::block);
  has(Feature::latent, shape.is_latent());
  has(Feature::e4m3_cache, e4m3_cache);
  has(Feature::any_head_dim, head_dim != 64 && head_dim != 128 && head_dim != 256 && !shape.is_latent());
  has(Feature::strides, !shape.is_default_layout());
  has(Feature::causal, left < 0 && right == 0);
  has(Feature::window, left >= 0 || right > 0);
  has(Feature::sink_keys, sink_keys > 0);
  has(Feature::prefix, prefix > 0);
  has(Feature::lengths, !lengths.empty());
  has(Feature::documents, !documents.first_query.empty());
  has(Feature::intervals, columns.bounds > 0);
  has(Feature::blocks, blocks.queries > 0);
  has(Feature::pairs, !dense.empty());
  has(Feature::softcap, softcap > 0);
  has(Feature::alibi, !alibi.empty());
  has(Feature::bias, !bias.values.empty());
  has(Feature::sinks, !sinks.empty());
  has(Feature::dropout, dropout > 0);
  has(Feature::pages, page_rows > 0);
  has(Feature::paddings, padded);
  has(Feature::packed_queries, packed_queries > 0);
  has(Feature::unsplit, unsplit);
  has(Feature::ranks, rank_count > 1 || order.has_value());
  has(Feature::token_order, order.value_or(TokenOrder::contiguous) != TokenOrder::contiguous);
  return all;
}

}  // namespace flashbook
