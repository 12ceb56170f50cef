/// \file
/// Chapter 5's timeline: what the warpgroups of a block do at the same time, in cycles.
///
///     timeline FILE
///
/// Writes a result file: for steps 2 to 5 with head_dim 64 and 128, the time stamps of one block. In the
/// simulator they give an order but no times.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/context.h"
#include "bench/meter.h"
#include "bench/recorded.h"
#include "chapters/05_flash_attention_3/host/chapter.h"
#include "common/app/exit_code.h"
#include "common/app/machine_context.h"
#include "common/app/whole_file.h"
#include "common/attention/error.h"

namespace flashbook {
namespace {

using nlohmann::ordered_json;

/// Returns the papers' grid at N = 4096; a small shape for the simulator.
Spec spec_of(int head_dim) {
  const bool gpu = device::machine() == device::Machine::gpu;
  const int heads = gpu ? 2048 / head_dim : 1, seqlen = gpu ? 4096 : 1024;
  return {{.batch = gpu ? 4 : 1,
           .heads = heads,
           .kv_heads = heads,
           .seqlen_q = seqlen,
           .seqlen_k = seqlen,
           .head_dim = head_dim,
           .dtype = DType::bf16,
           .scale = default_scale(head_dim)}};
}

/// One line per pass, "warpgroup 1 tile 30 end 7802 issued 5326 ...", counted from the first stamp.
std::vector<std::string> rows_of(const std::vector<Pass>& passes) {
  int64_t first = INT64_MAX;
  for (const Pass& pass : passes)
    for (const auto& [moment, at] : pass.at) first = std::min(first, at);
  std::vector<std::string> rows;
  for (const Pass& pass : passes) {
    rows.push_back("warpgroup " + std::to_string(pass.warpgroup) + " tile " + std::to_string(pass.tile));
    for (const auto& [moment, at] : pass.at) rows.back() += " " + moment + " " + std::to_string(at - first);
  }
  return rows;
}

int run(const std::string& file) {
  const Chapter recorded = recorded_chapter();
  const bool gpu = device::machine() == device::Machine::gpu;
  ordered_json whole;
  Meter meter(gpu ? 0.2 : 0);
  for (int head_dim : {64, 128})
    for (int step = 1; step <= recorded.last_step(); ++step) {
      const Cell cell{&recorded, step, spec_of(head_dim)},
          plain{&kFlashAttention3, kFlashAttention3.place(cell.row().slug), spec_of(head_dim)};
      if (whole.empty()) {
        for (const auto& [key, value] : measuring_context(std::span(&cell, 1))) whole["context"][key] = value;
        whole["context"]["date"] = date_now();
      }
      const Measurement unrecorded = meter.measure(plain), measured = meter.measure(cell);
      if (const std::string wrong = unrecorded.wrong + measured.skipped + measured.wrong; !wrong.empty()) {
        std::cerr << "timeline: " << cell.row().slug << ", head_dim " << head_dim << ": " << wrong << "\n";
        return kWrongResult;
      }
      const std::vector<Pass> passes = take_record();
      ordered_json entry = {{"name", "timeline" + name_of(cell).substr(std::string("forward").size())},
                            {"run_type", "iteration"},
                            {"label", cell.row().name},
                            {"real_time", measured.seconds * 1e3},
                            {"time_unit", "ms"},
                            {"slowdown", measured.seconds / unrecorded.seconds}};
      entry["stamps"] = rows_of(passes);
      std::cout << entry["name"].get<std::string>() << ": " << passes.size() << " passes\n";
      whole["benchmarks"].push_back(entry);
    }
  write_whole_file(file, whole.dump(1) + "\n");
  return kRight;
}

}  // namespace
}  // namespace flashbook

int main(int argc, char** argv) {
  return flashbook::exit_code("timeline", [&] {
    if (argc != 2 || std::string_view(argv[1]).starts_with("-"))
      throw flashbook::InputError("timeline needs one argument, the result file: timeline timeline.json");
    return flashbook::run(argv[1]);
  });
}
