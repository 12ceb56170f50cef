#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/step2_packed.cuh"
#include "chapters/09_masks/step2_packed_map.cuh"

namespace flashbook::masks {
int64_t packed_workspace_bytes(const Shape& shape) {
  const int64_t documents = int64_t(shape.visibility.documents.first_query.size());
  return kCounterBytes + int64_t(sizeof(int)) * 2 * documents;
}

void run_packed(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  const DocumentBounds documents = documents_of(shape, tensors);
  const Ranges ranges{band_of(shape.visibility), {}};
  if (documents.count == 0) return run_ranges(shape, tensors, stream);  // one sequence a batch entry
  with_sizes<true>(shape, [&]<typename T, typename Sizes>() {
    auto* counter = static_cast<int*>(tensors.workspace);
    int* const sorted = counter + kCounterBytes / int64_t(sizeof(int));
    const Plan plan{sorted, sorted + documents.count};
    device::launch(make_plan<Sizes::kRows, Sizes::kKeys>, dim3(1), dim3(kPlanThreads), 0, stream, documents,
                   plan, counter);
    const hopper::TileOrder order = hopper::tile_order(shape, Sizes::kRows, true);
    const int64_t tiles = int64_t(shape.heads) * (shape.seqlen_q / Sizes::kRows + documents.count);
    run_masked<T, Sizes>(shape, tensors, stream, Packed{documents, plan, order.heads_of_section, ranges, {}},
                         tiles, counter, packed_map, packed_units);
  });
}

}  // namespace flashbook::masks
