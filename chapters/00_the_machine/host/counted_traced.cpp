#include "chapters/00_the_machine/host/counted.h"
#include "common/simulator/trace/trace.h"

namespace flashbook::machine {

std::vector<double> units_of_loads(bool shared) {
  std::vector<double> found;
  for (const sim::LaunchTrace& launch : sim::take_trace()) {
    sim::Counts loads;
    for (const sim::LineCounts& line : launch.lines)
      if (line.shared == shared && line.access == sim::Access::load) loads.add(line.counts);
    if (loads.requests > 0) found.push_back(double(loads.units) / double(loads.requests));
  }
  return found;
}

}  // namespace flashbook::machine
