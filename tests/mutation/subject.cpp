#include "tests/mutation/subject.h"

#include <stdexcept>
#include <string>

namespace flashbook::mutation {

const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : kernels())
    if (kernel.name == name) return kernel;
  throw std::out_of_range("kernels.cu lists no kernel named " + std::string(name));
}

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
