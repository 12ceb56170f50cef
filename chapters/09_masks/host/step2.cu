#include "chapters/09_masks/host/packed_launch.cuh"

namespace flashbook::masks {

int64_t varlen_workspace_bytes(const Spec& spec) {
  const int64_t documents = int64_t(spec.visibility.documents.first_query.size());
  return kCounterBytes + int64_t(sizeof(int)) * 2 * documents;
}

void run_varlen(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  if (documents_of(spec, tensors).count == 0)
    return run_ranges(spec, tensors, stream);  // one sequence per batch entry
  const Ranges ranges{band_of(spec.visibility), {}};
  run_packed<true, std::type_identity_t, true>(spec, tensors, stream, [&](const InPlan<Packed>& planned) {
    return Varlen{planned, {ranges}, {}};
  });
}

}  // namespace flashbook::masks
