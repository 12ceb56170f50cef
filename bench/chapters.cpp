#include "bench/chapters.h"

#include "chapters/01_naive_attention/chapter.h"
#include "chapters/02_online_softmax/chapter.h"
#include "chapters/03_flash_attention_1/chapter.h"
#include "chapters/04_flash_attention_2/chapter.h"
#include "chapters/05_flash_attention_3/chapter.h"
#include "chapters/06_fp8/chapter.h"

namespace flashbook {

std::span<const Chapter* const> all_chapters() {
  static const Chapter* const chapters[] = {&kNaiveAttention,  &kOnlineSoftmax,   &kFlashAttention1,
                                            &kFlashAttention2, &kFlashAttention3, &kFp8};
  return chapters;
}

}  // namespace flashbook
