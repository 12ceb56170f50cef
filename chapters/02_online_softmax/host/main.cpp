#include "chapters/02_online_softmax/host/chapter.h"
#include "chapters/02_online_softmax/host/worked_example.h"
#include "common/app/program.h"

int main(int argc, char** argv) {
  return flashbook::run_chapter_program(argc, argv, flashbook::kOnlineSoftmax,
                                        flashbook::kOnlineSoftmaxBefore, flashbook::print_worked_example);
}
