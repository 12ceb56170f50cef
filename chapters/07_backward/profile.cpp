#include "common/app/profile.h"

#include "chapters/07_backward/chapter.h"

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kBackward); }
