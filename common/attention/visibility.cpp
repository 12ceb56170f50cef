#include "common/attention/visibility.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/features/definition.h"

namespace flashbook {
namespace {

const std::vector<const Definition*>& masks() {
  static const std::vector<const Definition*> kMasks = [] {
    std::vector<const Definition*> masks(definitions().begin(), definitions().end());
    std::erase_if(masks, [](const Definition* feature) { return feature->mask == nullptr; });
    return masks;
  }();
  return kMasks;
}

/// Calls `use` once for each of a problem's masks. Features that share a mask are adjacent.
template <typename Use>
void for_each_mask(const Spec& spec, Use use) {
  const Mask* last = nullptr;
  for (const Definition* feature : masks())
    if (feature->mask != last && feature->is_in(spec)) use(*(last = feature->mask));
}

/// Returns the class of a tile by the plain definition.
TileClass classify_pairs(const Mask& mask, const Spec& spec, int batch, int head, const ScoreTile& tile) {
  bool any = false, all = true;
  for (int query = tile.first_query; query < tile.first_query + tile.queries && (!any || all); ++query)
    for (int key = tile.first_key; key < std::min(spec.seqlen_k, tile.first_key + tile.keys); ++key) {
      const bool hidden = mask.hides(spec, batch, head, query, key);
      any |= !hidden, all &= !hidden;
    }
  return all ? TileClass::full : any ? TileClass::partial : TileClass::skip;
}

/// Counts visible pairs by halving partial tiles until they are no longer partial.
double count(const Spec& spec, int batch, int head, const ScoreTile& tile) {
  const TileClass kind = classify(spec, batch, head, tile);
  if (kind == TileClass::skip) return 0;
  if (kind == TileClass::full) return double(tile.queries) * tile.keys;
  ScoreTile one = tile, other = tile;
  if (tile.queries >= tile.keys) {
    one.queries = tile.queries / 2;
    other.first_query += one.queries, other.queries -= one.queries;
  } else {
    one.keys = tile.keys / 2;
    other.first_key += one.keys, other.keys -= one.keys;
  }
  return count(spec, batch, head, one) + count(spec, batch, head, other);
}

bool any_mask(const Spec& spec, bool Definition::*property) {
  return std::ranges::any_of(masks(),
                             [&](const Definition* mask) { return mask->*property && mask->is_in(spec); });
}

}  // namespace

bool sees(const Spec& spec, int batch, int head, int query, int key) {
  return classify(spec, batch, head, {query, 1, key, 1}) == TileClass::full;
}

TileClass classify(const Spec& spec, int batch, int head, const ScoreTile& given) {
  ScoreTile tile = given;
  tile.queries = int(std::min<int64_t>(tile.queries, int64_t(spec.seqlen_q) - tile.first_query));
  if (tile.queries <= 0 || tile.keys <= 0 || tile.first_key >= spec.seqlen_k) return TileClass::skip;
  // Every mask restricts, so the tile's class is the smallest of the masks' classes.
  TileClass found =
      int64_t(tile.first_key) + tile.keys > spec.seqlen_k ? TileClass::partial : TileClass::full;
  for_each_mask(spec, [&](const Mask& mask) {
    if (found != TileClass::skip)
      found = std::min(found, mask.classify != nullptr ? mask.classify(spec, batch, head, tile)
                                                       : classify_pairs(mask, spec, batch, head, tile));
  });
  return found;
}

KeyRange keys_seen(const Spec& spec, int batch, int, int first_query, int queries) {
  const int last_query = int(std::min<int64_t>(spec.seqlen_q, int64_t(first_query) + queries) - 1);
  KeyRange seen = {0, spec.seqlen_k};
  for_each_mask(spec, [&](const Mask& mask) {
    if (mask.keys_seen == nullptr) return;
    const KeyRange range = mask.keys_seen(spec, batch, first_query, last_query);
    seen = {std::max(seen.begin, range.begin), std::min(seen.end, range.end)};
  });
  return seen.begin < seen.end ? seen : KeyRange{0, 0};
}

double visible_pairs(const Spec& spec, int batch, int head) {
  const double queries = spec.seqlen_q, keys = spec.seqlen_k;
  if (spec.visibility.is_full()) return queries * keys;
  if (spec.causal()) {
    if (queries == keys) return queries * keys / 2;
    // The last query sees every key, and each earlier query one key less, down to none.
    const double seeing = std::min(queries, keys);
    const double least = keys - seeing + 1;
    return seeing * (least + keys) / 2;
  }
  std::vector<const Mask*> given;
  for_each_mask(spec, [&](const Mask& mask) { given.push_back(&mask); });
  if (given.size() == 1 && given[0]->pairs != nullptr) return given[0]->pairs(spec, batch, head);
  return count(spec, batch, head, {0, spec.seqlen_q, 0, spec.seqlen_k});
}

double visible_pairs(const Spec& spec) {
  const int batches = any_mask(spec, &Definition::by_batch) ? spec.batch : 1;
  const int heads = any_mask(spec, &Definition::by_head) ? spec.heads : 1;
  double pairs = 0;
  for (int batch = 0; batch < batches; ++batch)
    for (int head = 0; head < heads; ++head) pairs += visible_pairs(spec, batch, head);
  return pairs * (spec.batch / batches) * (spec.heads / heads);
}

std::string describe(const Visibility& visibility) {
  const Spec spec{{}, visibility};
  std::string text;
  for (const Definition* feature : masks())
    if (feature->describe != nullptr && feature->is_in(spec)) text += ", " + feature->describe(spec);
  return text.empty() ? "full" : text.substr(2);
}

}  // namespace flashbook
