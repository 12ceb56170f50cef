// common/app/supported.h agrees with the chapters' tables of steps.
#include "common/app/supported.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "library/chapters.h"

namespace flashbook {
namespace {

/// "chapter 8 (steps 4 to 6) or chapter 9 (step 8)"; empty if no chapter supports it, or too many to need
/// naming.
std::string where(Operation operation, Feature feature) {
  std::vector<std::string> parts;
  for (const Chapter* chapter : all_chapters()) {
    std::vector<int> steps = chapter->steps_of(operation);
    std::erase_if(steps, [&](int number) {
      const Step& step = chapter->step(number);
      return !(step.accepts | step.needs).has(feature);
    });
    if (steps.empty()) continue;
    parts.push_back("chapter " + std::to_string(chapter->number));
    if (int(steps.size()) < chapter->last_step()) parts.back() += " (" + steps_text(steps) + ")";
  }
  if (parts.size() > 4) return "";
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " or " : ", ") + parts[i];
  return text;
}

TEST(Supported, Table) {
  std::ostringstream rows;
  std::size_t place = 0, different = 0;
  for (const Operation operation : {Operation::forward, Operation::backward, Operation::decode})
    for (int bit = 0; bit < int(Feature::unknown); ++bit) {
      const std::string text = where(operation, Feature(bit));
      if (text.empty()) continue;
      rows << "    {Operation::" << name_of(operation) << ", Feature::" << text_of(Feature(bit)).name
           << ", \"" << text << "\"},\n";
      const bool is_there = place < std::size(kSupported);
      different += !is_there || kSupported[place].operation != operation ||
                   kSupported[place].feature != Feature(bit) || kSupported[place].where != text;
      ++place;
    }
  EXPECT_EQ(different, 0) << "kSupported in common/app/supported.h should be\n" << rows.str();
  EXPECT_EQ(place, std::size(kSupported));
}

}  // namespace
}  // namespace flashbook
