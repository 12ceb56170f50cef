#include "common/app/profile.h"

#include "chapters/05_flash_attention_3/host/chapter.h"

int main(int argc, char** argv) {
  return flashbook::profile_chapter(argc, argv, flashbook::kFlashAttention3);
}
