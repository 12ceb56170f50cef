#include "bench/ablation.h"

#include <array>

#include "chapters/04_flash_attention_2/host/chapter.h"
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "chapters/07_backward/host/chapter.h"
#include "chapters/08_decoding/host/chapter.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

Chapter with(Chapter chapter, std::span<const Step> rows) {
  chapter.steps = rows;
  return chapter;
}

}  // namespace

// Replaces library/chapters.cpp: the ablation's library has only these chapters.
std::span<const Chapter* const> all_chapters() {
  static const std::array chapters = {with(kFlashAttention2, ablation_04()),
                                      with(kFlashAttention3, ablation_05()), with(kBackward, ablation_07()),
                                      with(kDecoding, ablation_08())};
  static const std::array pointers = {&chapters[0], &chapters[1], &chapters[2], &chapters[3]};
  return pointers;
}

}  // namespace flashbook
