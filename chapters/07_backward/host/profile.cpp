#include "common/app/profile.h"

#include "chapters/07_backward/host/chapter.h"

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kBackward); }
