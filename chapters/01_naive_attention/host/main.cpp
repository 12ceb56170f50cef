#include "chapters/01_naive_attention/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kNaiveAttention,
                                        flashbook::kNaiveAttentionBefore);
}
