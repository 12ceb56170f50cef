#include "chapters/06_fp8/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kFp8, flashbook::kFp8Before);
}
