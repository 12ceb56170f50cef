// Which fault a program of chapters.py has: none, unless it is asked for one.
#include <cstdlib>

extern const int flashbook_fault;
const int flashbook_fault =
    std::getenv("FLASHBOOK_FAULT") != nullptr ? std::atoi(std::getenv("FLASHBOOK_FAULT")) : -1;
