#include "common/app/profile.h"

#include "chapters/01_naive_attention/host/chapter.h"

int main(int argc, char** argv) { return flashbook::profile_chapter(argc, argv, flashbook::kNaiveAttention); }
