/// \file
/// The worked example of the chapter's text, which its program prints before its results.
#pragma once
#include <iosfwd>

namespace flashbook {

/// Prints the example, computed by the functions that steps 1 to 3 run.
void print_worked_example(std::ostream& out);

}  // namespace flashbook
