#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"

namespace flashbook::masks {

void run_ranges(const Spec& spec, const Tensors& tensors, device::Stream stream) {
  run_in_batch<true, true>(spec, tensors, stream, [&]<typename Traits>(const InBatch& order) {
    return ByRanges{order, {ranges_of(spec, tensors)}, {}};
  });
}

}  // namespace flashbook::masks
