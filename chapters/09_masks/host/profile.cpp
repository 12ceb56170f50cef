#include "common/app/profile.h"

#include "chapters/09_masks/host/chapter.h"

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kMasks); }
