#include "tests/mutation/subject.h"

#include "tests/support/specs.h"

namespace flashbook::mutation {

Spec spec_of(const Kernel& kernel, int seqlen_q, int seqlen_k, int head_dim) {
  return testing::make_spec(seqlen_q, seqlen_k, head_dim, false, kernel.dtype, 2, 2);
}

std::vector<Mutant>& mutants() {
  static std::vector<Mutant> mutants;
  return mutants;
}

}  // namespace flashbook::mutation
