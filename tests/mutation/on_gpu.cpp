#include "tests/mutation/trial.h"

namespace flashbook::mutation {

std::string try_in_every_way(const Kernel& kernel, Attention attention, const Shape& shape) {
  return try_once(kernel, attention, shape);
}

}  // namespace flashbook::mutation
