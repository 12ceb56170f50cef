/// \file
/// ladder FILE...: prints the reports that the chapters' programs wrote with --json as one table.
#include <iostream>

#include "common/app/exit_code.h"
#include "common/app/report.h"
#include "common/attention/error.h"

int main(int argc, char** argv) {
  return flashbook::exit_code("ladder", [&] {
    std::vector<flashbook::Report> reports;
    for (int i = 1; i < argc; ++i) reports.push_back(flashbook::read_json(argv[i]));
    if (reports.empty())
      throw flashbook::InputError("give the files that the chapters' programs wrote with --json");
    flashbook::print_ladder(std::cout, reports);
    return flashbook::kRight;
  });
}
