#include "chapters/07_backward/host/hopper.h"
#include "chapters/07_backward/host/hopper_launch.cuh"

template void flashbook::backward::run_hopper<64>(const Spec&, const Tensors&, device::Stream, int);
