#include "chapters/10_many_gpus/host/chapter.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kManyGpus, flashbook::kManyGpusBefore);
}
