#include "tests/mutation/trial.h"

namespace flashbook::mutation {

std::string try_in_every_way(const Kernel& kernel, Attention attention, const Spec& spec) {
  return try_once(kernel, attention, spec);
}

}  // namespace flashbook::mutation
