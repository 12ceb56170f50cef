#include "bench/ablation_versions.cuh"

namespace flashbook {

template void run_ablation<64>(const Shape&, const Tensors&, device::Stream, int);

}  // namespace flashbook
