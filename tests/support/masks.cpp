#include "tests/support/masks.h"

#include <algorithm>
#include <stdexcept>

namespace flashbook::testing {
namespace {

using Random = std::mt19937;

/// A number from `least` to `most`, inclusive.
int between(Random& random, int least, int most) { return least + int(random() % (most - least + 1)); }

bool one_in(Random& random, int count) { return random() % count == 0; }

/// `parts` + 1 ascending numbers from 0 to `end`.
std::vector<int> random_cuts(Random& random, int parts, int end) {
  std::vector<int> cuts = {0, end};
  while (int(cuts.size()) < parts + 1) cuts.push_back(between(random, 0, end));
  std::ranges::sort(cuts);
  return cuts;
}

Columns random_columns(Random& random, const Shape& shape) {
  Columns columns{.heads = one_in(random, 2) ? 1 : shape.kv_heads, .bounds = 1 << between(random, 0, 2)};
  columns.queries.resize(shape.batch * columns.heads * shape.seqlen_k * columns.bounds);
  for (int& bound : columns.queries) bound = between(random, 0, shape.seqlen_q);
  return columns;
}

Blocks random_blocks(Random& random, const Shape& shape) {
  Blocks blocks{.queries = between(random, 1, 9), .keys = between(random, 1, 9), .first = {0}};
  for (int query = 0; query < shape.seqlen_q; query += blocks.queries) {
    for (int block = 0; block * blocks.keys < shape.seqlen_k; ++block)
      if (!one_in(random, 3)) blocks.key_blocks.push_back(block);
    blocks.first.push_back(int(blocks.key_blocks.size()));
  }
  return blocks;
}

/// Mostly visible, so that tiles of all classes remain.
Dense random_pairs(Random& random, const Shape& shape) {
  Dense dense{.heads = one_in(random, 2) ? 1 : shape.heads};
  dense.visible.resize(shape.batch * dense.heads * shape.seqlen_q * shape.seqlen_k);
  for (unsigned char& pair : dense.visible) pair = !one_in(random, 20);
  return dense;
}

}  // namespace

Shape with_feature(Feature feature, Shape shape) {
  Random random(7);
  Visibility& v = shape.visibility;
  ScoreFunction& score = shape.score;
  const auto heads = std::size_t(shape.heads);
  const int half_q = shape.seqlen_q / 2, half_k = shape.seqlen_k / 2;
  switch (feature) {
    case Feature::float32:
      shape.dtype = DType::f32;
      break;
    case Feature::e4m3:
      shape.dtype = DType::e4m3;
      break;
    case Feature::block_scales:
      shape.scaling = Scaling::block;
      break;
    case Feature::latent:
      shape = with_latent_keys(shape);
      break;
    case Feature::e4m3_cache:
      shape = with_e4m3_cache(shape);
      break;
    case Feature::any_head_dim:
      shape.head_dim = 96;
      break;
    case Feature::strides:
      shape.layout = layout_bshd(shape);
      break;
    case Feature::causal:
      v.window.right = 0;
      break;
    case Feature::window:
      v.window.left = 8;
      break;
    case Feature::sink_keys:
      v.window = {.left = 8, .right = 0, .sinks = 3};
      break;
    case Feature::prefix:
      v.window.right = 0, v.prefix = 9;
      break;
    case Feature::lengths:
      v.lengths.assign(std::size_t(shape.batch), shape.seqlen_k - 1);
      break;
    case Feature::documents:
      v.documents = {{0, half_q, shape.seqlen_q}, {0, half_k, shape.seqlen_k}};
      break;
    case Feature::intervals:
      v.columns = random_columns(random, shape);
      break;
    case Feature::blocks:
      v.blocks = random_blocks(random, shape);
      break;
    case Feature::pairs:
      v.dense = random_pairs(random, shape);
      break;
    case Feature::softcap:
      score.softcap = 30;
      break;
    case Feature::alibi:
      score.alibi.assign(heads, 0.5f);
      break;
    case Feature::bias:
      score.bias = {0, std::vector<float>(heads, 1.0f)};
      break;
    case Feature::sinks:
      score.sinks.assign(heads, 1.0f);
      break;
    case Feature::dropout:
      score.dropout = 0.1f;
      break;
    case Feature::pages:
      shape.paging = {.rows = shape.seqlen_k, .pages = shape.batch, .table = {}};
      for (int batch = 0; batch < shape.batch; ++batch) shape.paging.table.push_back(batch);
      break;
    case Feature::paddings:
      shape.paging.padded = true;
      break;
    case Feature::packed_queries:
      shape.packed_queries = shape.batch * shape.seqlen_q;
      break;
    case Feature::unsplit:
      shape.unsplit = true;
      break;
    case Feature::ranks:
      shape.ranks = 2;
      break;
    case Feature::token_order:
      shape.ranks = 2, shape.order = TokenOrder::striped;
      break;
    case Feature::unknown:
      break;
  }
  return shape;
}

Shape masked_shape(int seqlen_q, int seqlen_k, Visibility visibility, int head_dim) {
  return {.batch = 1,
          .heads = 4,
          .kv_heads = 2,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = head_dim,
          .visibility = std::move(visibility),
          .dtype = DType::bf16,
          .scale = default_scale(head_dim)};
}

bool sees_by_definition(const Shape& shape, int batch, int head, int query, int key) {
  const Visibility& v = shape.visibility;
  int queries = shape.seqlen_q, keys = v.lengths.empty() ? shape.seqlen_k : v.lengths[batch];
  int i = query, j = key;
  for (std::size_t d = 0; d + 1 < v.documents.first_query.size(); ++d) {
    if (query < v.documents.first_query[d] || query >= v.documents.first_query[d + 1]) continue;
    queries = v.documents.first_query[d + 1] - v.documents.first_query[d];
    keys = v.documents.first_key[d + 1] - v.documents.first_key[d];
    i -= v.documents.first_query[d], j -= v.documents.first_key[d];
  }
  if (j < 0 || j >= keys) return false;

  const int own = i + keys - queries;
  const bool before_right = v.window.right < 0 || j <= own + v.window.right;
  const bool after_left = v.window.left < 0 || j >= own - v.window.left || j < v.window.sinks;
  if (!(before_right && after_left) && j >= v.prefix) return false;

  if (const Columns& c = v.columns; c.bounds > 0) {
    const int column_head = c.heads == 1 ? 0 : head / (shape.heads / shape.kv_heads);
    const auto bound = [&](int n) {
      return c.queries[((batch * c.heads + column_head) * shape.seqlen_k + key) * c.bounds + n];
    };
    const bool causal = v.window.right == 0;
    const int lts = bound(0);
    const int lte = c.bounds == 4 || (c.bounds == 2 && causal) ? bound(1) : shape.seqlen_q;
    const int uts = c.bounds == 4 ? bound(2) : 0;
    const int ute = c.bounds == 4 ? bound(3) : c.bounds == 2 && !causal ? bound(1) : 0;
    if ((lts <= query && query < lte) || (uts <= query && query < ute)) return false;
  }
  if (const Dense& d = v.dense; !d.visible.empty()) {
    const int64_t row = (int64_t(batch) * d.heads + (d.heads == 1 ? 0 : head)) * shape.seqlen_q + query;
    if (d.visible[row * shape.seqlen_k + key] == 0) return false;
  }
  if (const Blocks& b = v.blocks; b.queries > 0) {
    const int row = query / b.queries;
    return std::ranges::count(b.key_blocks.begin() + b.first[row], b.key_blocks.begin() + b.first[row + 1],
                              key / b.keys) > 0;
  }
  return true;
}

std::vector<float> slopes_by_sequence(const Shape& shape) {
  const std::size_t documents = shape.visibility.documents.first_query.size();
  std::vector<float> slopes((documents > 0 ? documents - 1 : std::size_t(shape.batch)) * shape.heads);
  for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = 1.5f / float(1 + i);
  return slopes;
}

RelativeBias random_bias(Random& random, int heads, int reach) {
  RelativeBias bias{.reach = reach, .values = std::vector<float>(std::size_t(heads * (2 * reach + 1)))};
  for (float& value : bias.values) value = float(between(random, -16, 16)) / 8;
  return bias;
}

Shape with_dense_mask(Shape shape) {
  Dense dense{.heads = shape.heads};
  dense.visible.resize(int64_t(shape.batch) * dense.heads * shape.seqlen_q * shape.seqlen_k);
  auto pair = dense.visible.begin();
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int head = 0; head < dense.heads; ++head)
      for (int query = 0; query < shape.seqlen_q; ++query)
        for (int key = 0; key < shape.seqlen_k; ++key) *pair++ = sees(shape, batch, head, query, key);
  shape.visibility = {.dense = std::move(dense)};
  return shape;
}

Shape with_columns(Shape shape) {
  Columns columns{.heads = shape.kv_heads, .bounds = 4};
  for (int batch = 0; batch < shape.batch; ++batch)
    for (int head = 0; head < shape.kv_heads; ++head)
      for (int key = 0; key < shape.seqlen_k; ++key) {
        int begin = 0, end = shape.seqlen_q;
        const auto seen_by = [&](int query) {
          return sees(shape, batch, head * (shape.heads / shape.kv_heads), query, key);
        };
        while (begin < end && !seen_by(begin)) ++begin;
        while (begin < end && !seen_by(end - 1)) --end;
        for (int query = begin; query < end; ++query)
          if (!seen_by(query)) throw std::logic_error("a key is seen by queries that are not consecutive");
        columns.queries.insert(columns.queries.end(), {end, shape.seqlen_q, 0, begin});
      }
  shape.visibility = {.columns = std::move(columns)};
  return shape;
}

Shape random_mask(Random& random) {
  Shape shape{.batch = between(random, 1, 2),
              .heads = 4,
              .kv_heads = 2,
              .seqlen_q = between(random, 1, 24),
              .seqlen_k = between(random, 1, 24)};
  Visibility& v = shape.visibility;
  if (!one_in(random, 3))
    v.window = {
        .left = between(random, -1, 9), .right = between(random, -1, 5), .sinks = between(random, 0, 4)};
  if (one_in(random, 2)) v.window.right = 0;
  if (one_in(random, 4)) v.prefix = between(random, 1, 12);
  if (one_in(random, 4)) {
    const int parts = between(random, 1, 4);
    v.documents.first_query = random_cuts(random, parts, shape.seqlen_q);
    v.documents.first_key = random_cuts(random, parts, shape.seqlen_k);
  } else if (one_in(random, 4)) {
    v.lengths.resize(shape.batch);
    for (int& length : v.lengths) length = between(random, 0, shape.seqlen_k);
  }
  if (one_in(random, 4)) v.columns = random_columns(random, shape);
  if (one_in(random, 4)) v.blocks = random_blocks(random, shape);
  if (one_in(random, 8)) v.dense = random_pairs(random, shape);
  return shape;
}

}  // namespace flashbook::testing
