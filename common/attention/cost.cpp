#include "common/attention/cost.h"

#include <numeric>

#include "common/attention/tensors.h"

namespace flashbook {
namespace {

/// The elements that are read or written. Pages and rows beyond a sequence's length do not count.
double elements_used(const Shape& shape, TensorId id) {
  if (!is_stored(shape, id) || (id != TensorId::k && id != TensorId::v))
    return double(elements_of(shape, id));
  const std::vector<int>& lengths = shape.visibility.lengths;
  double keys = lengths.empty() ? double(shape.batch) * shape.seqlen_k
                                : std::accumulate(lengths.begin(), lengths.end(), 0.0);
  if (shape.visibility.window.left >= 0 && shape.visibility.documents.first_key.empty()) {
    keys = 0;  // nothing before a window is read
    for (int batch = 0; batch < shape.batch; ++batch) {
      const KeyRange seen = keys_seen(shape, batch, 0, 0, shape.seqlen_q);
      keys += seen.end - seen.begin;
    }
  }
  const double again = (shape.batch - 1.0) * shape.paging.shared;  // for the other readers of a shared prefix
  return (keys - again) * shape.kv_heads * shape.head_dim;
}

}  // namespace

double flops(const Shape& shape, Operation operation) {
  const double forward = 2.0 * (shape.head_dim + shape.value_dim()) * visible_pairs(shape);
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
