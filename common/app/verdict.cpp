#include "common/app/verdict.h"

namespace flashbook {

std::vector<TensorVerdict> by_tensor(const CheckResult& result) {
  return {{TensorId::o, result.o}, {TensorId::lse, result.lse}};
}

}  // namespace flashbook
