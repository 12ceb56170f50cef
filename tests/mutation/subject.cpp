#include "tests/mutation/subject.h"

namespace flashbook::mutation {

Shape shape_of(const Kernel& kernel, int seqlen_q, int seqlen_k, int head_dim) {
  return {.batch = 1,
          .heads = 2,
          .kv_heads = 2,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = head_dim,
          .dtype = kernel.dtype,
          .scale = default_scale(head_dim)};
}

std::vector<Mutant>& mutants() {
  static std::vector<Mutant> mutants;
  return mutants;
}

}  // namespace flashbook::mutation
