#include "common/features/list.h"

#include "common/features/definition.h"

namespace flashbook {

std::span<const Definition* const> definitions() {
#define FLASHBOOK_ROW(name) &features::name,
  static constexpr const Definition* kAll[] = {FLASHBOOK_FEATURES(FLASHBOOK_ROW)};
#undef FLASHBOOK_ROW
  return kAll;
}

const Definition& definition_of(Feature feature) { return *definitions()[std::size_t(feature)]; }

std::string_view name_of(Feature feature) {
#define FLASHBOOK_ROW(name) #name,
  static constexpr std::string_view kNames[] = {FLASHBOOK_FEATURES(FLASHBOOK_ROW) "unknown"};
#undef FLASHBOOK_ROW
  return kNames[int(feature)];
}

Features features_of(const Shape& shape) {
  // If this no longer compiles, there is a new member: name it here once it has a feature.
  [[maybe_unused]] const auto& [batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, value_dim, visibility,
                                dtype, scale, e4m3_cache, scaling, mean_subtracted, score, layout, paging,
                                packed_queries, unsplit, ranks, order] = shape;
  Features all;
  for (std::size_t bit = 0; bit < definitions().size(); ++bit)
    if (definitions()[bit]->is_in(shape)) all = all | Feature(bit);
  return all;
}

}  // namespace flashbook
