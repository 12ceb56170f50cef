/// \file
/// The machine and the tools behind a measurement.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/grid.h"

namespace flashbook {

/// Returns machine_context for the machine that runs the kernels of `cells`, plus `ch01`, ... with each
/// chapter's title. Throws device::HardwareMissing if cells need a GPU that is missing.
std::vector<std::pair<std::string, std::string>> measuring_context(std::span<const Cell> cells);

}  // namespace flashbook
