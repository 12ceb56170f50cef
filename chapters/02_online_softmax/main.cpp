#include "chapters/01_naive_attention/chapter.h"
#include "chapters/02_online_softmax/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kOnlineSoftmax, &flashbook::kNaiveAttention);
}
