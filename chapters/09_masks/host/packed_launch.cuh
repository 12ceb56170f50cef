//| # How packed sequences are launched
//|
//| Launches the plan, then the kernel, whose tensor maps end where a sequence does. Steps 2 and 5 share it.
#pragma once
#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"
#include "chapters/09_masks/host/varlen_map.cuh"

namespace flashbook::masks {

/// Launches the kernel for packed sequences. `policy_of(planned)` makes its policy; `Sized<Traits>` may
/// change the sizes of its tiles.
template <bool kLight, template <typename> typename Sized = std::type_identity_t, bool kWide = false,
          typename PolicyOf>
void run_packed(const Spec& spec, const Tensors& tensors, device::Stream stream, const PolicyOf& policy_of) {
  const DocumentBounds documents = documents_of(spec, tensors);
  with_traits<kLight, kWide>(spec, [&]<typename T, typename Default>() {
    using Traits = Sized<Default>;
    auto* counter = static_cast<int*>(tensors.workspace);
    int* const sorted = counter + kCounterBytes / int64_t(sizeof(int));
    const Plan plan{sorted, sorted + documents.count};
    const OpenEnds open = open_ends(spec, tensors, documents.first_query + documents.count);
    device::launch(make_plan<Traits::kRows, Traits::kKeys, Packed>, dim3(1 + clearing_blocks(open)),
                   dim3(kPlanThreads), 0, stream, Packed{documents}, plan, open);
    const TileOrder order = tile_order(spec, Traits::kRows, true);
    const int64_t tiles = int64_t(spec.heads) * (spec.seqlen_q / Traits::kRows + documents.count);
    const InPlan<Packed> planned{{documents}, plan, order.heads_of_section};
    run_masked<T, Traits>(spec, tensors, stream, policy_of(planned), tiles, counter,
                          maps_of<Traits>(spec, tensors, varlen_map, varlen_strides));
  });
}

}  // namespace flashbook::masks
