#include "chapters/09_masks/host/backward_launch.cuh"

template void flashbook::masks::run_wide_gradients<192, 128>(const Spec&, const Tensors&, device::Stream,
                                                             bool);
