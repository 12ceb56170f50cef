#include "common/app/profile.h"

#include "chapters/06_fp8/host/chapter.h"

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kFp8); }
