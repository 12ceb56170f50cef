#include "chapters/04_flash_attention_2/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kFlashAttention2,
                                        flashbook::kFlashAttention2Before);
}
