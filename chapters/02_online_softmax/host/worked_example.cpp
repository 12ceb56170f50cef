#include "chapters/02_online_softmax/host/worked_example.h"

#include <cstdio>
#include <ostream>

#include "chapters/02_online_softmax/step1_safe_softmax.h"
#include "chapters/02_online_softmax/step2_online_softmax.h"

namespace flashbook {

void print_worked_example(std::ostream& out) {
  const auto line = [&](const char* what, const SoftmaxState& state) {
    char text[96];
    std::snprintf(text, sizeof text, "  %-28s m = %g, l = %.2f\n", what, state.row_max, state.row_sum);
    out << text;
  };
  float first_block[] = {2}, second_block[] = {5, 3}, whole_row[] = {2, 5, 3};
  out << "Worked example: the scores [2, 5, 3], in blocks [2] and [5, 3]\n";
  const SoftmaxState first = safe_softmax(first_block), second = safe_softmax(second_block);
  line("block [2] alone", first);
  line("block [5, 3] alone", second);
  SoftmaxState both = first;
  merge(both, second);
  line("both, by the merge rule", both);
  line("the whole row at once", safe_softmax(whole_row));
  out << "\n";
}

}  // namespace flashbook
