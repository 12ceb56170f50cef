#include "chapters/07_backward/chapter.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kBackward;
const Chapter* const chapter_before = nullptr;

}  // namespace flashbook::testing
