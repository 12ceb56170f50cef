// common/app/supported.h agrees with the chapters' tables of steps.
#include "common/app/supported.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>

#include "library/chapters.h"

namespace flashbook {
namespace {

TEST(Supported, Table) {
  std::ostringstream rows;
  std::size_t place = 0, different = 0;
  for (const Chapter* chapter : all_chapters())
    for (const Operation operation : {Operation::forward, Operation::backward, Operation::decode}) {
      Features features;
      for (const int number : chapter->steps_of(operation)) {
        const Step& step = chapter->step(number);
        features = features | step.accepts | step.needs;
      }
      if (chapter->steps_of(operation).empty()) continue;
      rows << "      {" << chapter->number << ", " << name_of(operation);
      const char* before = ", ";
      for (int bit = 0; bit < int(Feature::unknown); ++bit)
        if (features.has(Feature(bit))) rows << std::exchange(before, " | ") << name_of(Feature(bit));
      rows << "},\n";
      different += place >= std::size(kSupported) || kSupported[place].chapter != chapter->number ||
                   kSupported[place].operation != operation || kSupported[place].features != features;
      ++place;
    }
  EXPECT_EQ(different, 0) << "kSupported in common/app/supported.h should be\n" << rows.str();
  EXPECT_EQ(place, std::size(kSupported));
}

}  // namespace
}  // namespace flashbook
