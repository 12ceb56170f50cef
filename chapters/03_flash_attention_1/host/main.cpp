#include "chapters/03_flash_attention_1/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kFlashAttention1,
                                        flashbook::kFlashAttention1Before);
}
