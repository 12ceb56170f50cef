#include "chapters/05_flash_attention_3/chapter.h"
#include "chapters/06_fp8/chapter.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFp8;
const Chapter* const chapter_before = &kFlashAttention3;

}  // namespace flashbook::testing
