#include "chapters/09_masks/host/launch.cuh"
#include "chapters/09_masks/host/steps.h"

namespace flashbook::masks {

void run_ranges(const Shape& shape, const Tensors& tensors, device::Stream stream) {
  run_in_batch<true, true>(shape, tensors, stream, [&]<typename Traits>(const InBatch& order) {
    return ByRanges{order, {ranges_of(shape, tensors)}, {}};
  });
}

}  // namespace flashbook::masks
