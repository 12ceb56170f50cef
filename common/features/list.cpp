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

// If this no longer compiles, Spec has a new member: add braces here once a feature covers the member.
template <typename T>
concept HasMoreMembers = requires {
  T{{}, {}, {}, {}, {}, {}, {}, {}, {}};
};
static_assert(!HasMoreMembers<Spec>);

Features features_of(const Spec& spec) {
  Features all;
  for (std::size_t bit = 0; bit < definitions().size(); ++bit)
    if (definitions()[bit]->is_in(spec)) all = all | Feature(bit);
  return all;
}

}  // namespace flashbook
