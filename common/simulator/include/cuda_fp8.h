#pragma once
#include "common/simulator/cuda.h"
