/// \file
/// Where and with what numbers were measured.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/grid.h"

namespace flashbook {

/// What machine_context says of the machine, on which the kernels of `cells` run, and `ch01` ... with each
/// chapter's title. Throws device::HardwareMissing if cells need a GPU that is not there.
std::vector<std::pair<std::string, std::string>> measuring_context(std::span<const Cell> cells);

}  // namespace flashbook
