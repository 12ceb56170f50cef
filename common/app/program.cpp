#include "common/app/program.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <iostream>

#include "common/app/exit_code.h"
#include "common/app/inspect.h"
#include "common/app/runner.h"
#include "common/app/whole_file.h"
#include "common/attention/npy.h"

namespace flashbook {
namespace {

void list_steps(const Chapter& chapter) {
  std::cout << "Chapter " << chapter.number << ": " << chapter.title << "\n";
  for (int step = 1; step <= chapter.last_step(); ++step)
    std::cout << "  " << step << " " << chapter.step(step).slug << ": " << chapter.step(step).name << ". "
              << chapter.step(step).idea << "\n";
}

void write_outputs(const Options& options, const Outputs& outputs) {
  for (const auto& [tensor, file] : options.outputs)
    write_whole_file(file, npy_bytes(dims_of(options.spec, tensor), outputs[tensor]));
}

/// Makes the program keep freed memory. Each step allocates tensors of up to half a gigabyte, and with new
/// pages every time, the system takes longer to clear them than the program takes to fill them.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

int run_program(int argc, char** argv, const Chapter& chapter, const Chapter* before, Preface preface) {
  CommandLine command = parse_command_line(argc, argv, chapter);
  if (!command.options) {
    std::cout << command.text;
    return kRight;
  }
  const Options& options = *command.options;
  if (options.list) {
    list_steps(chapter);
    return kRight;
  }
  keep_freed_memory();
  if (options.inspected) return inspect_steps(std::cout, options, chapter) ? kRight : kWrongResult;
  const RunResult result = run(options, chapter, before);
  write_outputs(options, result.outputs);
  if (!options.json.empty()) write_json(options.json, result.report);
  if (preface != nullptr) preface(std::cout);
  print_report(std::cout, result.report);
  return result.report.ok() ? kRight : kWrongResult;
}

}  // namespace

int run_chapter_program(int argc, char** argv, const Chapter& chapter, const Chapter* before,
                        Preface preface) {
  return exit_code(chapter.name, [&] { return run_program(argc, argv, chapter, before, preface); });
}

}  // namespace flashbook
