/// \file
/// CUtensorMap: CUDA's, or the simulator's struct of that name.
#pragma once
#ifdef __CUDACC__
#include <cuda.h>
#else
#include "common/simulator/tensor_map.h"
#endif
