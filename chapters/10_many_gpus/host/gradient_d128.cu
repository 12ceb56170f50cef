#include "chapters/10_many_gpus/host/gradient_launch.cuh"

template void flashbook::many_gpus::differentiate_with<128>(const Gradient&, device::Queue&);
