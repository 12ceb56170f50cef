#include "chapters/05_flash_attention_3/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kFlashAttention3,
                                        flashbook::kFlashAttention3Before);
}
