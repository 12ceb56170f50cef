// Which fault a program of chapters.py has: none, unless it is asked for one. And what a traced one does.
#include <cstdlib>

extern const int flashbook_fault;
const int flashbook_fault =
    std::getenv("FLASHBOOK_FAULT") != nullptr ? std::atoi(std::getenv("FLASHBOOK_FAULT")) : -1;

#ifdef FLASHBOOK_PLANTED_TRACED
int run_main(int argc, char** argv);
int profile_main(int argc, char** argv);

int main(int argc, char** argv) {
  return (std::getenv("FLASHBOOK_PLANTED") != nullptr ? profile_main : run_main)(argc, argv);
}
#endif
