#include "tests/support/masks.h"

#include <algorithm>
#include <stdexcept>

#include "common/features/helpers.h"

namespace flashbook::testing {
namespace {

using Random = std::mt19937;
using features::between, features::one_in;

}  // namespace

Spec with_feature(Feature feature, Spec spec) {
  Random random(7);
  definition_of(feature).give(spec, random);
  return spec;
}

Spec masked_spec(int seqlen_q, int seqlen_k, Visibility visibility, int head_dim) {
  return {{.batch = 1,
           .heads = 4,
           .kv_heads = 2,
           .seqlen_q = seqlen_q,
           .seqlen_k = seqlen_k,
           .head_dim = head_dim,
           .dtype = DType::bf16,
           .scale = default_scale(head_dim)},
          std::move(visibility)};
}

bool sees_by_definition(const Spec& spec, int batch, int head, int query, int key) {
  return std::ranges::none_of(definitions(), [&](const Definition* feature) {
    return feature->mask != nullptr && feature->is_in(spec) &&
           feature->mask->hides(spec, batch, head, query, key);
  });
}

int times_listed(const Spec& spec, int batch, int query, int key) {
  const Indices& lists = spec.visibility.indices;
  const auto first = lists.keys.begin() + (int64_t(batch) * spec.seqlen_q + query) * lists.count;
  return lists.count == 0 ? 1 : int(std::count(first, first + lists.count, key));
}

std::vector<float> slopes_by_sequence(const Spec& spec) {
  const std::size_t documents = spec.visibility.documents.first_query.size();
  std::vector<float> slopes((documents > 0 ? documents - 1 : std::size_t(spec.batch)) * spec.heads);
  for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = 1.5f / float(1 + i);
  return slopes;
}

RelativeBias random_bias(Random& random, int heads, int reach) {
  RelativeBias bias{.reach = reach, .values = std::vector<float>(std::size_t(heads * (2 * reach + 1)))};
  for (float& value : bias.values) value = float(between(random, -16, 16)) / 8;
  return bias;
}

Spec with_dense_mask(Spec spec) {
  Dense dense{.heads = spec.heads};
  dense.visible.resize(int64_t(spec.batch) * dense.heads * spec.seqlen_q * spec.seqlen_k);
  auto pair = dense.visible.begin();
  for (int batch = 0; batch < spec.batch; ++batch)
    for (int head = 0; head < dense.heads; ++head)
      for (int query = 0; query < spec.seqlen_q; ++query)
        for (int key = 0; key < spec.seqlen_k; ++key) *pair++ = sees(spec, batch, head, query, key);
  spec.visibility = {.dense = std::move(dense)};
  return spec;
}

Spec with_columns(Spec spec) {
  Columns columns{.heads = spec.kv_heads, .bounds = 4};
  for (int batch = 0; batch < spec.batch; ++batch)
    for (int head = 0; head < spec.kv_heads; ++head)
      for (int key = 0; key < spec.seqlen_k; ++key) {
        int begin = 0, end = spec.seqlen_q;
        const auto seen_by = [&](int query) {
          return sees(spec, batch, head * (spec.heads / spec.kv_heads), query, key);
        };
        while (begin < end && !seen_by(begin)) ++begin;
        while (begin < end && !seen_by(end - 1)) --end;
        for (int query = begin; query < end; ++query)
          if (!seen_by(query)) throw std::logic_error("a key is seen by queries that are not consecutive");
        columns.queries.insert(columns.queries.end(), {end, spec.seqlen_q, 0, begin});
      }
  spec.visibility = {.columns = std::move(columns)};
  return spec;
}

Spec random_mask(Random& random, Features among) {
  Spec spec{{.batch = between(random, 1, 2),
             .heads = 4,
             .kv_heads = 2,
             .seqlen_q = between(random, 1, 24),
             .seqlen_k = between(random, 1, 24)}};
  for (std::size_t bit = 0; bit < definitions().size(); ++bit) {
    const Definition& feature = *definitions()[bit];
    if (feature.mask == nullptr || !among.has(Feature(bit)) || !one_in(random, 4)) continue;
    Spec more = spec;
    feature.give(more, random);
    try {
      validate(more);
    } catch (const InputError&) {
      continue;  // it is incompatible with the problem's features
    }
    spec = std::move(more);
  }
  return spec;
}

}  // namespace flashbook::testing
