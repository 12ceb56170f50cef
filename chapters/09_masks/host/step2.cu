#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/host/varlen_map.cuh"
#include "chapters/09_masks/step2_varlen.cuh"

namespace flashbook::masks {
int64_t varlen_workspace_bytes(const Shape& shape) {
  const int64_t documents = int64_t(shape.visibility.documents.first_query.size());
  return kCounterBytes + int64_t(sizeof(int)) * 2 * documents;
}

void run_varlen(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  const DocumentBounds documents = documents_of(shape, tensors);
  const Ranges ranges{band_of(shape.visibility), {}};
  if (documents.count == 0) return run_ranges(shape, tensors, stream);  // one sequence a batch entry
  with_traits<true>(shape, [&]<typename T, typename Traits>() {
    auto* counter = static_cast<int*>(tensors.workspace);
    int* const sorted = counter + kCounterBytes / int64_t(sizeof(int));
    const Plan plan{sorted, sorted + documents.count};
    const OpenEnds open = open_ends(shape, tensors, documents.first_query + documents.count);
    device::launch(make_plan<Traits::kRows, Traits::kKeys, Packed>, dim3(1 + clearing_blocks(open)),
                   dim3(kPlanThreads), 0, stream, Packed{documents}, plan, open);
    const TileOrder order = tile_order(shape, Traits::kRows, true);
    const int64_t tiles = int64_t(shape.heads) * (shape.seqlen_q / Traits::kRows + documents.count);
    run_masked<T, Traits>(shape, tensors, stream,
                          Varlen{{{documents}, plan, order.heads_of_section}, {ranges}, {}}, tiles, counter,
                          maps_of<Traits>(shape, tensors, varlen_map, varlen_strides));
  });
}

}  // namespace flashbook::masks
