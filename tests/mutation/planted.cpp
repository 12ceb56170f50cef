// The fault that a program of chapters.py has: none unless one is requested.
#include <cstdlib>

extern const int flashbook_fault;
const int flashbook_fault =
    std::getenv("FLASHBOOK_FAULT") != nullptr ? std::atoi(std::getenv("FLASHBOOK_FAULT")) : -1;
