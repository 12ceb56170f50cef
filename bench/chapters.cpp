#include "bench/chapters.h"

#include "chapters/01_naive_attention/chapter.h"
#include "chapters/02_online_softmax/chapter.h"
#include "chapters/03_flash_attention_1/chapter.h"
#include "chapters/04_flash_attention_2/chapter.h"

namespace flashbook {

std::span<const Chapter* const> all_chapters() {
  static const Chapter* const chapters[] = {&kNaiveAttention, &kOnlineSoftmax, &kFlashAttention1,
                                            &kFlashAttention2};
  return chapters;
}

const Chapter* chapter_numbered(int number) {
  for (const Chapter* chapter : all_chapters())
    if (chapter->number == number) return chapter;
  return nullptr;
}

}  // namespace flashbook
