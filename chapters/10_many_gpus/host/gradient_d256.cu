#include "chapters/10_many_gpus/host/gradient_launch.cuh"

template void flashbook::many_gpus::differentiate_with<256>(const Gradient&, device::Queue&);
