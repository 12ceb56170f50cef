#include "chapters/09_masks/host/backward_launch.cuh"

template void flashbook::masks::run_gradients<256>(const Spec&, const Tensors&, device::Stream, bool);
