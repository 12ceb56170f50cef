#include "common/app/profile.h"

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/app/call.h"
#include "common/app/exit_code.h"
#include "common/app/expected.h"
#include "common/app/options.h"
#include "common/app/progress.h"
#include "common/app/runner.h"
#include "common/app/table.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"
#include "common/simulator/trace/trace.h"

namespace flashbook {
namespace {

using nlohmann::json;
using sim::Access;
using sim::LaunchTrace;
using sim::LineCounts;

struct StepProfile {
  int step;
  std::string slug;
  std::string name;
  std::vector<sim::LaunchTrace> launches;
  double model_bytes;            ///< from the chapter's cost model
  double compulsory_bytes;       ///< the minimum for any kernel
  double requested_model_bytes;  ///< by the model of requested bytes; 0 if the chapter has none
};

struct Profile {
  int chapter;
  std::string name, title, spec;
  std::vector<StepProfile> steps;
};

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string triple(dim3 size) { return concat("(", size.x, ",", size.y, ",", size.z, ")"); }

const char* name_of(Access access) {
  return access == Access::load ? "load" : access == Access::store ? "store" : "atomic";
}

/// Returns a text such as "global load, 4 B, by cp_async_cg".
std::string kind_of(const LineCounts& line) {
  return concat(line.shared ? "shared " : "global ", name_of(line.access), ", ", line.bytes, " B",
                line.instruction.empty() ? "" : ", by ", line.instruction);
}

double per_request(uint64_t count, const LineCounts& line) {
  return double(count) / double(line.counts.requests);
}

constexpr uint64_t LaunchTrace::*kTraffic[] = {
    &LaunchTrace::bytes_requested_read, &LaunchTrace::bytes_requested_written,
    &LaunchTrace::bytes_distinct_read, &LaunchTrace::bytes_distinct_written};

void print_launch(std::ostream& out, const LaunchTrace& launch) {
  out << (launch.kernel.empty() ? "a kernel" : launch.kernel) << ", grid " << triple(launch.grid)
      << ", block " << triple(launch.block);
  if (launch.barriers > 0) {
    const double blocks = double(launch.grid.x) * launch.grid.y * launch.grid.z;
    out << ", " << fixed(double(launch.barriers) / blocks, 1) << " barriers a block";
  }
  out << "\n";
  Table table("llrrlrrr", {"  line", "access", "requests", "lanes", "unit", "a request", "ideal", "waste"});
  for (const LineCounts& line : launch.lines)
    table.add({"  " + line.place, kind_of(line), std::to_string(line.counts.requests),
               fixed(per_request(line.counts.lanes, line), 1), line.shared ? "wavefronts" : "sectors",
               fixed(per_request(line.counts.units, line), 2), fixed(per_request(line.counts.ideal, line), 2),
               std::to_string(line.waste())});
  table.print(out);
  out << "\n";
}

void print_traffic(std::ostream& out, const StepProfile& step) {
  Table table("lrrrr",
              {"  device memory, by launch", "requested read", "written", "distinct read", "written"});
  const auto add = [&](const std::string& name, const LaunchTrace& traffic) {
    std::vector<std::string> row = {"  " + name};
    for (const auto bytes : kTraffic) row.push_back(format_amount(double(traffic.*bytes), "B"));
    table.add(std::move(row));
  };
  LaunchTrace sum{};
  for (const LaunchTrace& launch : step.launches) {
    for (const auto bytes : kTraffic) sum.*bytes += launch.*bytes;
    add(launch.kernel.empty() ? "a kernel" : launch.kernel, launch);
  }
  add("together", sum);
  table.print(out);
  const double requested = double(sum.bytes_requested_read + sum.bytes_requested_written);
  const double distinct = double(sum.bytes_distinct_read + sum.bytes_distinct_written);
  out << "  requested " << format_amount(requested, "B");
  if (step.requested_model_bytes > 0)
    out << " (" << format_amount(step.requested_model_bytes, "B") << " by the chapter's model)";
  out << ", distinct " << format_amount(distinct, "B") << ", the chapter's cost model "
      << format_amount(step.model_bytes, "B") << ", inputs and outputs once "
      << format_amount(step.compulsory_bytes, "B") << "\n\n";
}

json to_json(const LineCounts& line) {
  return {{"place", line.place},
          {"instruction", line.instruction},
          {"memory", line.shared ? "shared" : "global"},
          {"access", name_of(line.access)},
          {"bytes", line.bytes},
          {"requests", line.counts.requests},
          {"lanes", line.counts.lanes},
          {line.shared ? "wavefronts" : "sectors", line.counts.units},
          {"ideal", line.counts.ideal},
          {"waste", line.waste()}};
}

json to_json(const LaunchTrace& launch) {
  json lines = json::array();
  for (const LineCounts& line : launch.lines) lines.push_back(to_json(line));
  return {{"kernel", launch.kernel},
          {"grid", {launch.grid.x, launch.grid.y, launch.grid.z}},
          {"block", {launch.block.x, launch.block.y, launch.block.z}},
          {"barriers", launch.barriers},
          {"bytes_requested_read", launch.bytes_requested_read},
          {"bytes_requested_written", launch.bytes_requested_written},
          {"bytes_distinct_read", launch.bytes_distinct_read},
          {"bytes_distinct_written", launch.bytes_distinct_written},
          {"lines", lines}};
}

/// Prints a table per launch, with lines sorted by waste, and each step's bytes next to those of the cost
/// model.
void print_profile(std::ostream& out, const Profile& profile) {
  out << "Chapter " << profile.chapter << ": " << profile.title << "\n";
  out << "machine  simulator, traced: no data race, no access out of bounds\n";
  out << "shape    " << profile.spec << "\n\n";
  for (const StepProfile& step : profile.steps) {
    out << "Step " << step.step << ": " << step.name << "\n\n";
    for (const LaunchTrace& launch : step.launches) print_launch(out, launch);
    print_traffic(out, step);
  }
}

void write_profile(const std::filesystem::path& file, const Profile& profile) {
  json steps = json::array();
  for (const StepProfile& step : profile.steps) {
    json launches = json::array();
    for (const LaunchTrace& launch : step.launches) launches.push_back(to_json(launch));
    steps.push_back({{"step", step.step},
                     {"slug", step.slug},
                     {"name", step.name},
                     {"model_bytes", step.model_bytes},
                     {"compulsory_bytes", step.compulsory_bytes},
                     {"requested_model_bytes", step.requested_model_bytes},
                     {"launches", launches}});
  }
  const json whole = {{"chapter", profile.chapter},
                      {"name", profile.name},
                      {"title", profile.title},
                      {"shape", profile.spec},
                      {"steps", steps}};
  write_whole_file(file, whole.dump(1) + "\n");
}

int profile(const Options& options, const Chapter& chapter) {
  const Spec& spec = options.spec;
  if (chapter.runs_on == device::Place::host)
    throw InputError("chapter ", chapter.number, " runs on the CPU: there is no kernel to trace");
  const Inputs inputs = options.inputs
                            ? *options.inputs
                            : make_inputs(options.operation, spec, InputKind::drifting, options.seed);
  Profile result{chapter.number, chapter.name, chapter.title, describe(spec), {}};
  bool right = true;
  const UploadedInputs uploaded(options.operation, spec, inputs, chapter.runs_on);
  std::optional<Expected> expected;
  if (options.check != CheckMode::off) expected.emplace(options.operation, spec, inputs, all_rows(spec));
  Report passed_over;
  for (const int step : runnable_steps(options, chapter, passed_over)) {
    const Step& row = chapter.step(step);
    const Call call(chapter, spec, uploaded, step);
    {
      ProgressLine progress("tracing step " + std::to_string(step));
      device::take_suspects();
      call.run();
    }
    result.steps.push_back({step, row.slug, row.name, sim::take_trace(), row.memory_bytes(spec),
                            compulsory_bytes(spec, options.operation), row.requested_bytes(spec)});
    if (!expected) continue;
    const std::string failure = describe_failure(expected->judge(call.download()), "the oracle");
    if (failure.empty()) continue;
    std::cerr << chapter.name << ": step " << step << " is wrong: " << failure << device::take_suspects()
              << "\n";
    right = false;
  }
  if (!options.json.empty()) write_profile(options.json, result);
  print_profile(std::cout, result);
  return right ? kRight : kWrongResult;
}

}  // namespace

int profile_chapter(int argc, char** argv, const Chapter& chapter) {
  return exit_code(chapter.name, [&] {
    CommandLine command = parse_command_line(argc, argv, chapter);
    if (command.options) return profile(*command.options, chapter);
    std::cout << command.text;
    return kRight;
  });
}

}  // namespace flashbook
