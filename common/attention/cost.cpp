#include "common/attention/cost.h"

#include "common/attention/visibility.h"
#include "common/features/definition.h"

namespace flashbook {
namespace {

/// Returns the elements that are read or written, excluding pages and rows beyond a sequence's length.
double elements_used(const Spec& spec, TensorId id) {
  if (!is_stored(spec, id) || (id != TensorId::k && id != TensorId::v)) return double(elements_of(spec, id));
  double keys = 0;  // keys seen by any query
  for (int batch = 0; batch < spec.batch; ++batch) {
    const KeyRange seen = keys_seen(spec, batch, 0, 0, spec.seqlen_q);
    keys += seen.end - seen.begin;
  }
  for (const Definition* feature : having(&Definition::unread_keys, spec)) keys -= feature->unread_keys(spec);
  return keys * spec.kv_heads * stored_columns(spec, id);
}

}  // namespace

double flops(const Spec& spec, Operation operation) {
  const double forward = 2.0 * (spec.head_dim + spec.value_dim) * visible_pairs(spec);
  return operation == Operation::backward ? 2.5 * forward : forward;
}

double compulsory_bytes(const Spec& spec, Operation operation) {
  double bytes = 0;
  for (const TensorSpec& tensor : tensors_of(operation))
    bytes += elements_used(spec, tensor.id) * double(size_of(type_of(spec, tensor.id)));
  for (const FeatureTable& table : tables_of(spec)) bytes += double(table.bytes.size());
  return bytes;
}

}  // namespace flashbook
