#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/step1_dense.cuh"

namespace flashbook::masks {

void run_pairs(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  const Dense& dense = spec.visibility.dense;
  if (dense.empty()) return run_ranges(spec, tensors, stream);
  run_in_batch<false>(spec, tensors, stream, [&]<typename Traits>(const InBatch& order) {
    const auto* visible = static_cast<const unsigned char*>(tensors.tables[int(TableId::dense)]);
    return ByPairs{order, visible, dense.heads, {}};
  });
}

}  // namespace flashbook::masks
