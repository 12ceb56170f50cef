// common/app/supported.h agrees with the chapters' tables of steps.
#include "common/app/supported.h"

#include <gtest/gtest.h>

#include <sstream>

#include "library/chapters.h"

namespace flashbook {
namespace {

TEST(Supported, Table) {
  std::ostringstream rows;
  std::size_t place = 0, different = 0;
  for (const Chapter* chapter : all_chapters())
    for (int number = 1; number <= chapter->last_step(); ++number, ++place) {
      const Step& step = chapter->step(number);
      rows << "      {" << chapter->number << ", " << number << ", " << name_of(step.operation) << ", ";
      Features features;
      for (int bit = 0; bit < int(Feature::unknown); ++bit)
        if (const Feature feature = Feature(bit); step.knows(feature)) {
          rows << (features.empty() ? "" : " | ") << name_of(feature);
          features = features | feature;
        }
      rows << (features.empty() ? "{}},\n" : "},\n");
      different += place >= std::size(kSupported) || kSupported[place].chapter != chapter->number ||
                   kSupported[place].step != number || kSupported[place].operation != step.operation ||
                   kSupported[place].features != features;
    }
  EXPECT_EQ(different, 0) << "kSupported in common/app/supported.h should be\n" << rows.str();
  EXPECT_EQ(place, std::size(kSupported));
}

}  // namespace
}  // namespace flashbook
