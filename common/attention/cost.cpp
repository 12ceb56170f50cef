#include "common/attention/cost.h"

namespace flashbook {

double flops(const Shape& shape) { return 4.0 * shape.head_dim * visible_pairs(shape); }

double compulsory_bytes(const Shape& shape) {
  const double inputs = double(size_of(shape.dtype)) * double(shape.q_elements() + 2 * shape.k_elements());
  const double output = double(size_of(output_type(shape.dtype))) * double(shape.q_elements());
  const double lse = double(sizeof(float)) * double(shape.q_rows());
  return inputs + output + lse;
}

}  // namespace flashbook
