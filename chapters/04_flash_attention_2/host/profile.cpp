#include "common/app/profile.h"

#include "chapters/04_flash_attention_2/host/chapter.h"

int main(int argc, char** argv) {
  return flashbook::profile_chapter(argc, argv, flashbook::kFlashAttention2);
}
