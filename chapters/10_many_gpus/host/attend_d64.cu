#include "chapters/10_many_gpus/host/launch.cuh"

template void flashbook::many_gpus::attend_with<64>(const Attention&, device::Queue&);
