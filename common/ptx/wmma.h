/// \file
/// nvcuda::wmma, CUDA's own C++ interface to tensor cores: matrices in fragments whose layout nobody knows.
/// From CUDA, or from the simulator, where the layout changes with the seed (FLASHBOOK_SIM_SEED). (CUDA
/// programming guide, Warp Matrix Functions)
#pragma once
#include "common/device/kernel.h"

#ifdef __CUDACC__
#include <mma.h>
#else
#include "common/simulator/wmma.h"
#endif
