#include "common/app/chapter.h"

#include "common/app/supported.h"
#include "common/concat.h"

namespace flashbook {
namespace {

/// Where a feature is supported: other steps of this chapter that compute the same, else those of all
/// chapters that do, else those that compute something else; empty if nowhere.
std::string where(const Chapter& chapter, Operation operation, Feature feature) {
  std::vector<int> numbers = chapter.steps_of(operation);
  std::erase_if(numbers,
                [&](int n) { return !(chapter.step(n).accepts | chapter.step(n).needs).has(feature); });
  if (!numbers.empty()) return steps_text(numbers);
  for (const bool same : {true, false})
    for (const Supported& row : kSupported)
      if (row.feature == feature && (!same || row.operation == operation)) return row.where;
  return "";
}

}  // namespace

std::string steps_text(const std::vector<int>& steps) {
  std::vector<std::string> parts;
  for (std::size_t i = 0, end; i < steps.size(); i = end) {
    for (end = i + 1; end < steps.size() && steps[end] == steps[end - 1] + 1;) ++end;
    if (end - i < 3) {
      for (std::size_t place = i; place < end; ++place) parts.push_back(std::to_string(steps[place]));
    } else {
      parts.push_back(concat(steps[i], " to ", steps[end - 1]));
    }
  }
  std::string text = steps.size() == 1 ? "step " : "steps ";
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::string Chapter::refusal(int number, const Shape& shape) const {
  const Step& asked = step(number);
  const auto first_of = [](Features set) {
    int bit = 0;
    while (bit < int(Feature::unknown) && !set.has(Feature(bit))) ++bit;
    return Feature(bit);
  };
  if (const Features unknown = asked.unknown_in(shape); !unknown.empty()) {
    const Feature feature = first_of(unknown);
    const FeatureText text = text_of(feature);
    const std::string elsewhere = where(*this, asked.operation, feature);
    const bool whole_chapter = std::ranges::none_of(steps, [&](const Step& s) {
      return s.operation == asked.operation && (s.accepts | s.needs).has(feature);
    });
    return concat(whole_chapter ? concat("chapter ", this->number) : concat("step ", number),
                  " does not support ", text.plural, ": ", text.cure,
                  elsewhere.empty() ? "" : ", or use " + elsewhere);
  }
  if (const Features missing = asked.needs - features_of(shape); !missing.empty())
    return concat("step ", number, " takes ", text_of(first_of(missing)).plural,
                  " only: give those, or use another step");
  return asked.limits ? asked.limits(shape) : "";
}

}  // namespace flashbook
