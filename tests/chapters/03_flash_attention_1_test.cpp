#include "chapters/02_online_softmax/chapter.h"
#include "chapters/03_flash_attention_1/chapter.h"
#include "common/attention/cost.h"
#include "tests/chapters/conformance.h"

namespace flashbook::testing {

const Chapter& chapter_under_test = kFlashAttention1;
const Chapter* const chapter_before = &kOnlineSoftmax;

}  // namespace flashbook::testing
