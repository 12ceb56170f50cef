#include "common/app/profile.h"

#include "chapters/03_flash_attention_1/host/chapter.h"

int main(int argc, char** argv) {
  return flashbook::profile_chapter(argc, argv, flashbook::kFlashAttention1);
}
