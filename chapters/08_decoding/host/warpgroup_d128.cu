#include "chapters/08_decoding/host/warpgroup_launch.cuh"

template void flashbook::decoding::run_warpgroups<128>(const Spec&, const Tensors&, device::Stream);
