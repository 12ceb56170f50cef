#include "common/app/chapter.h"

#include "common/app/supported.h"
#include "common/attention/error.h"
#include "common/concat.h"

namespace flashbook {
namespace {

/// Names the chapters with a step that computes `operation` and accepts the feature; empty if there are none.
std::string in_all_chapters(Operation operation, Feature feature) {
  std::vector<int> chapters;
  for (const Supported& row : kSupported)
    if (row.operation == operation && row.features.has(feature)) chapters.push_back(row.chapter);
  std::string text;
  for (const int& chapter : chapters)
    text += concat(text.empty() ? "" : &chapter == &chapters.back() ? " or " : ", ", "chapter ", chapter);
  return text;
}

/// Names the steps that support a feature: steps of this chapter with the same operation; if there are none,
/// chapters with such steps; if there are none, steps with another operation. Empty if there are none.
std::string where(const Chapter& chapter, Operation operation, Feature feature) {
  for (const Operation other : {operation, Operation::forward, Operation::backward, Operation::decode}) {
    std::vector<int> numbers = chapter.steps_of(other);
    std::erase_if(numbers, [&](int n) { return !chapter.step(n).knows(feature); });
    if (!numbers.empty()) return steps_text(numbers);
    if (const std::string text = in_all_chapters(other, feature); !text.empty()) return text;
  }
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

int Chapter::find(std::string_view asked) const {
  int number = last_step();
  while (number > 0 && asked != step(number).slug && asked != std::to_string(number)) --number;
  return number;
}

int Chapter::place(std::string_view asked) const {
  if (const int number = find(asked)) return number;
  throw InputError("chapter ", number, " has no step '", asked, "': give ", slugs());
}

std::string Chapter::slugs() const {
  std::string text;
  for (const Step& step : steps)
    text += concat(text.empty() ? "" : &step == &steps.back() ? " or " : ", ", step.slug);
  return concat(text, ", or a number from 1 to ", last_step());
}

std::string Chapter::refusal(int number, const Spec& spec) const {
  const Step& asked = step(number);
  const auto first_of = [](Features set) {
    int bit = 0;
    while (bit < int(Feature::unknown) && !set.has(Feature(bit))) ++bit;
    return Feature(bit);
  };
  if (const Features unknown = asked.unknown_in(spec); !unknown.empty()) {
    const Feature feature = first_of(unknown);
    const Definition& text = definition_of(feature);
    const std::string other = where(*this, asked.operation, feature);
    const bool whole_chapter = std::ranges::none_of(
        steps, [&](const Step& s) { return s.operation == asked.operation && s.knows(feature); });
    return concat(whole_chapter ? concat("chapter ", this->number) : concat("step ", number),
                  " does not support ", text.plural, ": ", text.cure,
                  other.empty() ? "" : ", or use " + other);
  }
  if (const Features missing = asked.needs - features_of(spec); !missing.empty())
    return concat("step ", number, " takes ", definition_of(first_of(missing)).plural,
                  " only: give those, or use another step");
  return asked.limits ? asked.limits(spec) : "";
}

}  // namespace flashbook
