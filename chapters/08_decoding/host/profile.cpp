#include "common/app/profile.h"

#include "chapters/08_decoding/host/chapter.h"

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kDecoding); }
