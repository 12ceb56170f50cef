/// \file
/// What a kernel's text needs when a host compiler reads it: the simulator's side of <cuda_runtime.h>.
#pragma once
#include <cstddef>
#include <cstdint>

#include "common/simulator/atomics.h"
#include "common/simulator/barrier.h"
#include "common/simulator/clock.h"
#include "common/simulator/cp_async.h"
#include "common/simulator/language.h"
#include "common/simulator/launch.h"
#include "common/simulator/ldmatrix.h"
#include "common/simulator/math.h"
#include "common/simulator/mbarrier.h"
#include "common/simulator/mma.h"
#include "common/simulator/registers.h"
#include "common/simulator/tma.h"
#include "common/simulator/warp.h"
#include "common/simulator/wgmma.h"
