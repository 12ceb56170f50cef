/// \file
/// What chapter 0 measures.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace flashbook::machine {

/// One number of a machine.
struct Measurement {
  std::string name;  ///< "latency/l2", as result files call it behind "machine/"
  std::string what;  ///< in a few words
  std::string
      quantity;  ///< "clocks", "per_clock", "bytes_per_second"; "sectors", "wavefronts" in the simulator
  std::optional<double>
      value;  ///< in that quantity; nothing if this machine cannot tell, and why_not says why
  std::string why_not;
  double seconds = 0;  ///< of the launch; 0 in the simulator
};

/// A kernel computed something else than it must.
struct WrongResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs every kernel of the chapter, checks what it computed, and measures it: large and timed on a GPU, the
/// median of five launches; small in the simulator, which counts sectors and wavefronts if the kernels are
/// traced, and times nothing. `progress` is told what comes next. Throws WrongResult, device::HardwareMissing
/// and device::DeviceError.
std::vector<Measurement> measure(const std::function<void(const std::string&)>& progress);

}  // namespace flashbook::machine
