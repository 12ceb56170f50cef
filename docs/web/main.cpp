#include "docs/web/run.h"

namespace flashbook {
extern const Chapter FLASHBOOK_CHAPTER;
}

int main(int count, char** words) {
  return flashbook::run_in_page(flashbook::FLASHBOOK_CHAPTER, count, words);
}
