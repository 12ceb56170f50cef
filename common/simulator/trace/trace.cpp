#include "common/simulator/trace/trace.h"

#include <algorithm>

#include "common/simulator/source_lines.h"
#include "common/simulator/trace/tracer.h"

namespace flashbook::sim {
namespace {

/// The launches of a program, including the current one. (Only one grid runs at a time.)
class Tracing final : public Watcher {
 public:
  std::unique_ptr<Observer> make_observer() override { return std::make_unique<Tracer>(); }

  void grid_begins(const Launch& launch) override {
    if (!launch.dependent) before_.reset();
    grid_ = std::make_shared<GridTrace>(launch, before_);
  }

  std::string grid_ends() override {
    std::string faults = grid_->faults.report(grid_->launch.kernel);
    grid_->memory.note_written();
    done_.push_back({grid_->launch, std::move(grid_->counts), grid_->busy_blocks, grid_->barriers,
                     grid_->memory.read_bytes(), grid_->memory.written_bytes()});
    if (done_.size() > kMaxKept) done_.erase(done_.begin());
    before_ = std::move(grid_);
    return faults;
  }

  GridTrace& grid() { return *grid_; }
  std::vector<LaunchTrace> take();

 private:
  /// The record of a finished launch. Source lines are looked up only on request.
  struct Done {
    Launch launch;
    std::unordered_map<uint64_t, Counts> counts;
    uint64_t busy_blocks, barriers, read, written;
  };
  static constexpr std::size_t kMaxKept = 1000;  // tests launch many grids and never request their records

  std::shared_ptr<GridTrace> grid_;
  std::shared_ptr<GridTrace> before_;  // previous launch, kept for dependent launches
  std::vector<Done> done_;
};

constinit Tracing tracing;

std::vector<LaunchTrace> Tracing::take() {
  std::vector<Site> sites;
  for (const Done& done : done_)
    for (const auto& [kind, counts] : done.counts) sites.push_back(Kind::unpacked(kind).site);
  const std::map<Site, SourceLine> lines = source_lines(sites);
  std::map<const void*, std::string> names;

  std::vector<LaunchTrace> launches;
  for (const Done& done : done_) {
    LaunchTrace trace;
    const auto name = names.try_emplace(done.launch.kernel);
    if (name.second) name.first->second = function_name(done.launch.kernel);
    trace.kernel = name.first->second;
    trace.grid = done.launch.grid;
    trace.block = done.launch.block;
    trace.busy_blocks = done.busy_blocks;
    trace.barriers = done.barriers;
    trace.bytes_distinct_read = done.read;
    trace.bytes_distinct_written = done.written;
    // A line may have been compiled to several code addresses. Two different loads on one line are
    // distinguished by their costs.
    using Line = std::tuple<std::string, std::string, Access, bool, int>;
    using Average = std::pair<double, double>;
    std::map<std::pair<Line, Average>, Counts> of_line;
    for (const auto& [packed, counts] : done.counts) {
      const Kind kind = Kind::unpacked(packed);
      const SourceLine& line = lines.at(kind.site);
      of_line[{{line.place, line.instruction, kind.access, kind.shared, kind.bytes},
               {double(counts.units) / double(counts.requests),
                double(counts.ideal) / double(counts.requests)}}]
          .add(counts);
      if (kind.shared) continue;
      if (kind.access != Access::store) trace.bytes_requested_read += counts.units * kSectorBytes;
      if (kind.access != Access::load) trace.bytes_requested_written += counts.units * kSectorBytes;
    }
    for (const auto& [key, counts] : of_line) {
      const auto& [place, instruction, access, shared, bytes] = key.first;
      trace.lines.push_back({place, instruction, access, shared, bytes, counts});
    }
    std::stable_sort(trace.lines.begin(), trace.lines.end(),
                     [](const LineCounts& a, const LineCounts& b) { return a.waste() > b.waste(); });
    launches.push_back(std::move(trace));
  }
  done_.clear();
  return launches;
}

}  // namespace

constinit Watcher* watcher = &tracing;
GridTrace& current_grid() { return tracing.grid(); }
std::vector<LaunchTrace> take_trace() { return tracing.take(); }

}  // namespace flashbook::sim
