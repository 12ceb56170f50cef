#include "common/attention/cost.h"

#include <algorithm>

namespace flashbook {

double visible_pairs(const Shape& shape) {
  const double queries = shape.seqlen_q, keys = shape.seqlen_k;
  if (!shape.causal) return queries * keys;
  if (queries == keys) return queries * keys / 2;
  // The last query sees every key and each one before it sees one less, down to none.
  const double seeing = std::min(queries, keys);
  const double least = keys - seeing + 1;
  return seeing * (least + keys) / 2;
}

double flops(const Shape& shape) {
  return 4.0 * shape.head_dim * visible_pairs(shape) * shape.heads * shape.batch;
}

double compulsory_bytes(const Shape& shape) {
  const double inputs = double(size_of(shape.dtype)) * double(shape.q_elements() + 2 * shape.k_elements());
  const double output = double(size_of(output_type(shape.dtype))) * double(shape.q_elements());
  const double lse = double(sizeof(float)) * double(shape.q_rows());
  return inputs + output + lse;
}

}  // namespace flashbook
