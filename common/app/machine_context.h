/// \file
/// On what machine, and when, something is measured.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace flashbook {

/// What a result file says of its machine: {key, value}, all text.
///
/// `machine` is "gpu", "simulator" if `kernels` run in it, or "cpu" if nothing but host code runs and there
/// is no GPU. Then `gpu`, `driver`, `runtime`, `toolkit`, `clocks` (where there is one), `cpu`,
/// `host_compiler` and `commit` (FLASHBOOK_COMMIT, or "unknown"). Throws device::HardwareMissing if kernels
/// need a GPU that is not there.
std::vector<std::pair<std::string, std::string>> machine_context(bool kernels);

/// The present moment as result files write it: "2026-11-22T00:45:00+00:00".
std::string date_now();

/// The compiler of the kernels: "nvcc 13.0.88", or "none: a simulator build".
const char* toolkit();

}  // namespace flashbook
