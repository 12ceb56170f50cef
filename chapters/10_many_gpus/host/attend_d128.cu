#include "chapters/10_many_gpus/host/launch.cuh"

template void flashbook::many_gpus::attend_with<128>(const Attention&, device::Queue&);
