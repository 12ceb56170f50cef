#include "common/attention/cost.h"

#include "common/attention/visibility.h"
#include "common/features/definition.h"

namespace flashbook {
namespace {

/// Returns the elements that are read or written. Pages and rows beyond a sequence's length do not count.
double elements_used(const Shape& shape, TensorId id) {
  if (!is_stored(shape, id) || (id != TensorId::k && id != TensorId::v))
    return double(elements_of(shape, id));
  double keys = 0;  // seen by any query
  for (int batch = 0; batch < shape.batch; ++batch) {
    const KeyRange seen = keys_seen(shape, batch, 0, 0, shape.seqlen_q);
    keys += seen.end - seen.begin;
  }
  for (const Definition* feature : having(&Definition::repeated_keys, shape))
    keys -= feature->repeated_keys(shape);
  return keys * shape.kv_heads * columns_of(shape, id);
}

}  // namespace

double flops(const Shape& shape, Operation operation) {
  const double forward = 2.0 * (shape.head_dim + shape.value_dim) * visible_pairs(shape);
  return operation == Operation::backward ? 2.5 * forward : forward;
}

double compulsory_bytes(const Shape& shape, Operation operation) {
  double bytes = 0;
  for (const TensorSpec& tensor : tensors_of(operation))
    bytes += elements_used(shape, tensor.id) * double(size_of(type_of(shape, tensor.id)));
  for (const ShapeTable& table : tables_of(shape)) bytes += double(table.bytes.size());
  return bytes;
}

}  // namespace flashbook
