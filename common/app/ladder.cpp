/// \file
/// ladder FILE...: prints the reports that the chapters' programs wrote with --json as one table.
#include <iostream>

#include "common/app/report.h"
#include "common/attention/error.h"

int main(int argc, char** argv) {
  try {
    std::vector<flashbook::Report> reports;
    for (int i = 1; i < argc; ++i) reports.push_back(flashbook::read_json(argv[i]));
    if (reports.empty())
      throw flashbook::InputError("give the files that the chapters' programs wrote with --json");
    flashbook::print_ladder(std::cout, reports);
    return 0;
  } catch (const flashbook::InputError& error) {
    std::cerr << "ladder: " << error.what() << "\n";
    return 2;
  }
}
