/// \file
/// Chapter 5's timeline: what the warpgroups of a block do at the same time, in cycles.
///
///     timeline FILE
///
/// Writes a result file: for steps 2 to 5 with head_dim 64 and 128, the time stamps of one block, and the
/// cycles per tile of keys between them. bench/README.md documents the fields. In the simulator the stamps
/// give an order but no times.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
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

constexpr const char* kInOrder[] = {"landed", "turn", "issued", "scores", "softmax", "values", "end"};

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

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

/// Medians over the consumers and the middle half of the tiles: the cycles between moments ("softmax_cycles"
/// end with `softmax`), per tile ("tile_cycles"), and between the first and the last consumer's start of a
/// tile
/// ("spread_cycles"). "idle_share" is the fraction of the time in which no consumer has products in flight.
ordered_json summary_of(const std::vector<Pass>& passes) {
  const int tiles = passes.front().tile + 1;
  std::map<std::string, std::vector<double>> found;
  std::map<int, const Pass*> before;             // each warpgroup's last pass
  std::map<int, std::vector<int64_t>> landed;    // per tile, the times of all consumers
  std::vector<std::pair<int64_t, int>> changes;  // changes in the number of consumers with products in flight
  for (const Pass& pass : passes) {
    if (pass.warpgroup == 0) continue;
    const Pass* last = std::exchange(before[pass.warpgroup], &pass);
    if (last == nullptr || pass.tile < tiles / 4 || pass.tile >= tiles - tiles / 4) continue;
    found["tile"].push_back(double(pass.at.at("end") - last->at.at("end")));
    int64_t from = last->at.at("end");
    for (const char* moment : kInOrder)
      if (const auto at = pass.at.find(moment); at != pass.at.end())
        found[moment].push_back(double(at->second - std::exchange(from, at->second)));
    landed[pass.tile].push_back(pass.at.at("landed"));
    changes.emplace_back(pass.at.at("turn"), 1);
    changes.emplace_back(pass.at.at(pass.at.contains("values") ? "values" : "scores"), -1);
  }
  for (const auto& [tile, times] : landed)
    found["spread"].push_back(double(std::ranges::max(times) - std::ranges::min(times)));

  ordered_json summary;
  for (const auto& [moment, spans] : found) summary[moment + "_cycles"] = median(spans);
  std::ranges::sort(changes);
  int64_t idle = 0;
  int under_way = 0;
  for (std::size_t i = 0; i + 1 < changes.size(); ++i)
    if ((under_way += changes[i].second) == 0) idle += changes[i + 1].first - changes[i].first;
  summary["idle_share"] = double(idle) / double(changes.back().first - changes.front().first);
  return summary;
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
      entry.update(summary_of(passes));
      entry["stamps"] = rows_of(passes);
      std::cout << entry["name"].get<std::string>() << ": " << entry["tile_cycles"] << " cycles per tile\n";
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
