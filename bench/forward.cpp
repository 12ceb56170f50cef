/// \file
/// Times the forward pass: every chapter, step, type, head dimension, mask and length, each checked before it
/// is timed.
///
/// Google Benchmark runs the cells and writes the results. A cell's time is the median of runs between two
/// CUDA events, each after a flush of the L2 (on the host: by steady_clock). bench/README.md documents the
/// fields of a result.
#include <benchmark/benchmark.h>

#include <iostream>

#include "bench/context.h"
#include "bench/meter.h"
#include "bench/options.h"
#include "bench/reporter.h"
#include "common/app/exit_code.h"
#include "common/attention/cost.h"
#include "library/chapters.h"

namespace flashbook {
namespace {

/// Reports a measurement to Google Benchmark. One "iteration" is the median of all runs.
void report(benchmark::State& state, const Cell& cell, const Measurement& result) {
  if (!result.skipped.empty() || !result.wrong.empty()) {
    state.SetLabel(result.wrong.empty() ? "skipped" : "wrong");
    state.SkipWithError((result.skipped + result.wrong).c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(result.seconds);
  state.SetLabel(cell.block_size != nullptr ? cell.block_size->label : cell.chapter->step(cell.step).name);
  state.counters = {
      {"runs", result.runs},
      {"spread", result.spread},
      {"over_limit", result.over_limit},
      {"tensor_bytes", result.tensor_bytes},
      {"workspace_bytes", result.workspace_bytes},
      {"error", result.verdicts.front().verdict.max_error},
      {"error_bound", result.verdicts.front().verdict.bound},
      {"relative_rms", result.verdicts.front().verdict.relative_rms},
  };
  for (std::size_t i = 0; i < result.kernels.size(); ++i) {
    const device::KernelResources& kernel = result.kernels[i];
    const std::string name = "kernel" + std::to_string(i + 1) + "_";
    state.counters[name + "registers"] = kernel.registers;
    state.counters[name + "shared_bytes"] = double(kernel.shared_bytes);
    state.counters[name + "local_bytes"] = double(kernel.local_bytes);
    state.counters[name + "threads"] = kernel.threads;
    state.counters[name + "blocks"] = kernel.blocks_per_multiprocessor;
    state.counters[name + "occupancy"] =
        double(kernel.blocks_per_multiprocessor * kernel.threads) / kernel.threads_per_multiprocessor;
  }
  if (device::machine() == device::Machine::simulator && cell.chapter->runs_on == device::Place::device)
    return;
  // No rates for simulated time.
  state.counters["FLOPS"] =
      benchmark::Counter(flops(cell.spec, cell.row().operation), benchmark::Counter::kIsRate);
  if (const double bytes = cell.row().memory_bytes(cell.spec); bytes > 0)
    state.SetBytesProcessed(int64_t(bytes));
  if (result.workspace_measured) state.counters["workspace_measured"] = *result.workspace_measured;
}

/// Returns " --chapter 2", the option that selects the chapters that are CPU code.
std::string host_chapters() {
  std::string option;
  for (const Chapter* chapter : all_chapters())
    if (chapter->runs_on == device::Place::host)
      option += (option.empty() ? " --chapter " : ",") + std::to_string(chapter->number);
  return option;
}

int run(const BenchOptions& options) {
  const std::vector<Cell> cells = make_grid(options.selection);
  const auto context = measuring_context(cells);
  for (const auto& [key, value] : context) benchmark::AddCustomContext(key, value);
  if (context.front().second == "simulator")
    std::cerr
        << "Times in the simulator say nothing about a GPU: they are not results, and results.py rejects "
           "them.\n";

  Meter meter(options.max_seconds);
  bool wrong = false;
  for (const Cell& cell : cells)
    benchmark::RegisterBenchmark(name_of(cell).c_str(),
                                 [&](benchmark::State& state) {
                                   const Measurement result = meter.measure(cell);
                                   wrong = wrong || !result.wrong.empty();
                                   report(state, cell, result);
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);

  ResultReporter reporter(options.out);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return wrong ? kWrongResult : kRight;
}

}  // namespace
}  // namespace flashbook

int main(int argc, char** argv) {
  using namespace flashbook;
  return exit_code("forward", [&] {
    const BenchOptions options = parse_bench_options(argc, argv);
    if (!options.help.empty()) {
      std::cout << options.help;
      return kRight;
    }
    try {
      return run(options);
    } catch (const device::HardwareMissing& error) {
      throw device::HardwareMissing(error.what() + (". Measured without a GPU:" + host_chapters()));
    }
  });
}
