/// \file
/// Chapter 0's program: prints what its kernels measure, and writes a result file.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "chapters/00_the_machine/host/measure.h"
#include "common/app/exit_code.h"
#include "common/app/line.h"
#include "common/app/machine_context.h"
#include "common/app/progress.h"
#include "common/app/report.h"
#include "common/app/table.h"
#include "common/app/whole_file.h"
#include "common/device/device.h"

namespace flashbook::machine {
namespace {

constexpr const char* kName = "00_the_machine";

std::string text_of(const Measurement& measurement) {
  if (!measurement.value) return measurement.why_not;
  if (measurement.quantity == "bytes_per_second") return format_amount(*measurement.value, "B") + "/s";
  char text[40];
  std::snprintf(text, sizeof text, *measurement.value < 100 ? "%.2f" : "%.0f", *measurement.value);
  return text + std::string(" ") + (measurement.quantity == "per_clock" ? "a clock" : measurement.quantity);
}

void print(const std::vector<Measurement>& measurements) {
  Table table("llr", {"name", "what", "measured"});
  for (const Measurement& measurement : measurements)
    table.add({measurement.name, measurement.what, text_of(measurement)});
  table.print(std::cout);
  if (device::machine() == device::Machine::simulator)
    std::cout << "\nEvery kernel ran and computed what it should. The simulator has no clock: it counts the "
                 "sectors and "
                 "wavefronts of\nloads. For clocks run this on a GPU.\n";
}

/// Writes Google Benchmark's format, which bench/results.py reads.
void write_json(const std::string& file, const std::vector<Measurement>& measurements) {
  nlohmann::ordered_json whole;
  whole["context"]["date"] = date_now();
  for (const auto& [key, value] : machine_context(true)) whole["context"][key] = value;
  for (const Measurement& measurement : measurements) {
    nlohmann::ordered_json entry = {{"name", "machine/" + measurement.name},
                                    {"run_type", "iteration"},
                                    {"label", measurement.what},
                                    {"real_time", measurement.seconds * 1e3},
                                    {"time_unit", "ms"}};
    if (measurement.value)
      entry[measurement.quantity] = *measurement.value;
    else
      entry.update({{"error_occurred", true}, {"error_message", measurement.why_not}});
    whole["benchmarks"].push_back(entry);
  }
  write_whole_file(file, whole.dump(1) + "\n");
}

int run(int argc, char** argv) {
  std::string json;
  Line line("Chapter 0 of Flashbook: the cost of a load, a product, an exponential on a GPU", kName);
  line.device();
  line.value("--json", "FILE", "Write the numbers to this file, as a result file of the bench",
             [&](const Value& given) { json = writable(given); });
  if (!line.read(argc, argv, std::cout)) return kRight;
  std::optional<ProgressLine> progress;
  const std::vector<Measurement> measurements =
      measure([&](const std::string& what) { progress.emplace("measuring " + what); });
  progress.reset();
  print(measurements);
  if (!json.empty()) write_json(json, measurements);
  return kRight;
}

}  // namespace
}  // namespace flashbook::machine

int main(int argc, char** argv) {
  return flashbook::exit_code(flashbook::machine::kName, [&] { return flashbook::machine::run(argc, argv); });
}
