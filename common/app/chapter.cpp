#include "common/app/chapter.h"

#include "common/app/supported.h"
#include "common/concat.h"

namespace flashbook {
namespace {

/// Returns the steps of all chapters that compute `operation` and accept the feature, by chapter; empty if
/// there are none.
std::string in_all_chapters(Operation operation, Feature feature) {
  std::vector<std::string> parts;
  for (auto row = std::begin(kSupported), end = row; row != std::end(kSupported); row = end) {
    std::vector<int> steps;
    for (; end != std::end(kSupported) && end->chapter == row->chapter; ++end)
      if (end->operation == operation && end->features.has(feature)) steps.push_back(end->step);
    if (steps.empty()) continue;
    parts.push_back(concat("chapter ", row->chapter));
    if (std::ptrdiff_t(steps.size()) < end - row) parts.back() += " (" + steps_text(steps) + ")";
  }
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " or " : ", ") + parts[i];
  return text;
}

/// Names the steps that support a feature: other steps of this chapter with the same operation, otherwise
/// such steps of any chapter, otherwise steps with another operation; empty if there are none.
std::string where(const Chapter& chapter, Operation operation, Feature feature) {
  std::vector<int> numbers = chapter.steps_of(operation);
  std::erase_if(numbers, [&](int n) { return !chapter.step(n).knows(feature); });
  if (!numbers.empty()) return steps_text(numbers);
  std::string text = in_all_chapters(operation, feature);
  for (const Operation other : {Operation::forward, Operation::backward, Operation::decode})
    if (text.empty()) text = in_all_chapters(other, feature);
  return text;
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
    const Definition& text = definition_of(feature);
    const std::string other = where(*this, asked.operation, feature);
    const bool whole_chapter = std::ranges::none_of(
        steps, [&](const Step& s) { return s.operation == asked.operation && s.knows(feature); });
    return concat(whole_chapter ? concat("chapter ", this->number) : concat("step ", number),
                  " does not support ", text.plural, ": ", text.cure,
                  other.empty() ? "" : ", or use " + other);
  }
  if (const Features missing = asked.needs - features_of(shape); !missing.empty())
    return concat("step ", number, " takes ", definition_of(first_of(missing)).plural,
                  " only: give those, or use another step");
  return asked.limits ? asked.limits(shape) : "";
}

}  // namespace flashbook
