#include <iostream>
#include <optional>

#include "common/app/call.h"
#include "common/app/exit_code.h"
#include "common/app/expected.h"
#include "common/app/options.h"
#include "common/app/profile.h"
#include "common/app/progress.h"
#include "common/app/runner.h"
#include "common/attention/cost.h"
#include "common/attention/error.h"
#include "common/attention/inputs.h"

namespace flashbook {
namespace {

int profile(const Options& options, const Chapter& chapter) {
  const Shape& shape = options.shape;
  if (chapter.runs_on == device::Place::host)
    throw InputError("chapter " + std::to_string(chapter.number) +
                     " runs on the CPU: there is no kernel to trace");
  const Inputs inputs = options.inputs
                            ? *options.inputs
                            : make_inputs(options.operation, shape, InputKind::drifting, options.seed);
  Profile result{chapter.number, chapter.name, chapter.title, describe(shape), {}};
  bool right = true;
  const UploadedInputs uploaded(options.operation, shape, inputs, chapter.runs_on);
  std::optional<Expected> expected;
  if (options.check != CheckMode::off) expected.emplace(options.operation, shape, inputs, all_rows(shape));
  Report passed_over;
  for (const int step : runnable_steps(options, chapter, passed_over)) {
    const Step& row = chapter.step(step);
    const Call call(chapter, shape, uploaded, step);
    {
      ProgressLine progress("tracing step " + std::to_string(step));
      call.run();
    }
    result.steps.push_back({step, row.name, sim::take_trace(), row.memory_bytes(shape),
                            compulsory_bytes(shape, options.operation), row.requested_bytes(shape)});
    if (!expected) continue;
    const std::string failure = describe_failure(expected->judge(call.download()), "the oracle");
    if (failure.empty()) continue;
    std::cerr << chapter.name << ": step " << step << " is wrong: " << failure << "\n";
    right = false;
  }
  if (!options.json.empty()) write_profile(options.json, result);
  print_profile(std::cout, result);
  return right ? kRight : kWrongResult;
}

}  // namespace

int profile_chapter(int argc, char** argv, const Chapter& chapter) {
  return exit_code(chapter.name, [&] {
    const CommandLine command = parse_command_line(argc, argv, chapter);
    if (command.options) return profile(*command.options, chapter);
    std::cout << command.text;
    return kRight;
  });
}

}  // namespace flashbook
