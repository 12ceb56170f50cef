#include "bench/ablation_07.cuh"

namespace flashbook {

template void run_ablation_07<128>(const Spec&, const Tensors&, device::Stream, int);

}  // namespace flashbook
