#include "bench/ablation_05.cuh"

namespace flashbook {

template void run_ablation_05<64>(const Spec&, const Tensors&, device::Stream, int);

}  // namespace flashbook
