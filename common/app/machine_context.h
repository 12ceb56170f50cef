/// \file
/// Describes the machine and the time of a measurement.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace flashbook {

/// Returns a result file's description of its machine: {key, value}, both text.
///
/// `machine` is "gpu", "simulator" if `kernels` run in it, or "cpu" if only host code runs and there is no
/// GPU. The other keys are `gpu`, `driver`, `runtime`, `toolkit`, `clocks` (if there is one), `cpu`,
/// `host_compiler` and `commit` (FLASHBOOK_COMMIT, or "unknown"). Throws device::HardwareMissing if kernels
/// need a GPU and there is none.
std::vector<std::pair<std::string, std::string>> machine_context(bool kernels);

/// Returns the current time in the format of result files: "2026-11-22T00:45:00+00:00".
std::string date_now();

/// Returns the compiler of the kernels: "nvcc 13.0.88", or "none: a simulator build".
const char* toolkit();

}  // namespace flashbook
