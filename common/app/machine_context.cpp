#include "common/app/machine_context.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>

#include "common/device/device.h"

namespace flashbook {
namespace {

std::string first_line(const char* command) {
  std::string line;
  if (std::FILE* pipe = popen(command, "r")) {
    for (int c; (c = std::fgetc(pipe)) != EOF && c != '\n';) line += char(c);
    pclose(pipe);
  }
  return line;
}

/// Returns a property of the first GPU as the driver's own tool reports it: "1980 MHz", "700 W".
std::string ask_driver(const std::string& property) {
  std::string answer =
      first_line(("nvidia-smi -i 0 --query-gpu=" + property + " --format=csv,noheader 2>/dev/null").c_str());
  if (const auto zeros = answer.find(".00 W"); zeros != answer.npos) answer.erase(zeros, 3);
  return answer;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != line.npos)
      return line.substr(line.find(": ") + 2);
  return "unknown";
}

/// Returns the GPU of this build; empty if there is none and it is not needed.
std::optional<device::Info> gpu(bool needed) {
  if (device::machine() != device::Machine::gpu) return std::nullopt;
  try {
    return device::info();
  } catch (const device::HardwareMissing&) {
    if (needed) throw;
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> machine_context(bool kernels) {
  const std::optional<device::Info> card = gpu(kernels);
  const char* commit = std::getenv("FLASHBOOK_COMMIT");

  std::vector<std::pair<std::string, std::string>> context;
  context.emplace_back("machine", card ? "gpu" : kernels ? "simulator" : "cpu");
  if (card) {
    const std::string driver = ask_driver("driver_version");
    context.emplace_back("gpu", card->name);
    context.emplace_back("multiprocessors", std::to_string(card->multiprocessors));
    if (const std::string memory = ask_driver("memory.total"); !memory.empty())
      context.emplace_back("memory", memory);
    if (const std::string uuid = ask_driver("uuid"); !uuid.empty()) context.emplace_back("gpu_uuid", uuid);
    context.emplace_back("driver", (driver.empty() ? "" : driver + ", ") + "CUDA " + card->driver);
    context.emplace_back("runtime", "CUDA " + card->runtime);
    if (!driver.empty())
      context.emplace_back("clocks", "SM up to " + ask_driver("clocks.max.sm") + ", memory " +
                                         ask_driver("clocks.max.mem") + ", power limit " +
                                         ask_driver("power.limit"));
  }
  if (device::machine() == device::Machine::gpu) context.emplace_back("toolkit", toolkit());
  context.emplace_back("cpu", cpu_name());
  context.emplace_back("host_compiler", FLASHBOOK_HOST_COMPILER);
  context.emplace_back("commit", commit != nullptr && *commit != '\0' ? commit : "unknown");
  return context;
}

std::string date_now() {
  char text[40];
  const std::time_t time = std::time(nullptr);
  std::strftime(text, sizeof text, "%FT%T+00:00", std::gmtime(&time));
  return text;
}

const char* toolkit() { return FLASHBOOK_TOOLKIT; }

}  // namespace flashbook
