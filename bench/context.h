/// \file
/// Where and with what numbers were measured.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/grid.h"

namespace flashbook {

/// What a result file says of its machine: {key, value}, all text.
///
/// `machine` is "gpu", "simulator" if a chapter's kernels run in it, or "cpu" if all cells run on the host
/// and there is no GPU. Then `gpu`, `driver`, `runtime`, `toolkit`, `clocks` (where there is one), `cpu`,
/// `host_compiler`, `commit` (FLASHBOOK_COMMIT, or "unknown") and `ch01` ... with each chapter's title.
/// Throws device::HardwareMissing if cells need a GPU that is not there.
std::vector<std::pair<std::string, std::string>> measuring_context(std::span<const Cell> cells);

}  // namespace flashbook
