/// \file
/// The measurements of chapter 0.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace flashbook::machine {

/// One number that describes the machine.
struct Measurement {
  std::string name;  ///< "latency/l2", its name in result files after "machine/"
  std::string what;  ///< short description
  std::string
      quantity;  ///< "clocks", "per_clock", "bytes_per_second"; "sectors", "wavefronts" in the simulator
  std::optional<double> value;  ///< in that quantity; empty if it cannot be measured here: see why_not
  std::string why_not;
  double seconds = 0;  ///< duration of the launch; 0 in the simulator
};

/// A kernel computed a wrong result.
struct WrongResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs every kernel of the chapter, checks its results, and measures it. On a GPU the launches are large,
/// and each result is the median of five. In the simulator they are small, and count sectors and wavefronts
/// if the kernels are traced. `progress` is called with the name of the next measurement. Throws WrongResult,
/// device::HardwareMissing and device::DeviceError.
std::vector<Measurement> measure(const std::function<void(const std::string&)>& progress);

}  // namespace flashbook::machine
