#include "chapters/09_masks/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kMasks, flashbook::kMasksBefore);
}
