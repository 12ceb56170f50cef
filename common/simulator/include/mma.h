#pragma once
#include "common/simulator/cuda.h"
#include "common/simulator/wmma.h"
