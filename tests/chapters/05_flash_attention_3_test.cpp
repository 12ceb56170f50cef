#include "chapters/01_naive_attention/chapter.h"
#include "chapters/05_flash_attention_3/chapter.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFlashAttention3;
const Chapter* const chapter_before = &kNaiveAttention;

}  // namespace flashbook::testing
