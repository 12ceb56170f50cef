#include "chapters/07_backward/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kBackward, flashbook::kBackwardBefore);
}
