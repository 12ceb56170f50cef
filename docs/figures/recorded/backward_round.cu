/// \file
/// Prints the events of a block of chapter 7's step 4 in the simulator as JSON, from which recorded_data.py
/// makes docs/figures/interactive/backward_round_data.js.
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chapters/07_backward/host/hopper_launch.cuh"
#include "docs/figures/recorded/recorder.h"

namespace flashbook {
namespace {

using namespace backward;
using Element = __nv_bfloat16;
using Traits = OneTile<Version<128, false>>;
using Shared = HopperShared<Element, Traits>;

constexpr int kRounds = 3;

/// Records who passes and who arrives at a barrier, loads, products and additions. What all warps of a
/// consumer do is recorded once, when the last of them has done it.
class Recorder : public testing::QuietObserver {
 public:
  static inline int told = 0;

  void block_begins(const sim::Block& block) override {
    memory_ = block.dynamic_shared;
    const auto& shared = *reinterpret_cast<const Shared*>(memory_);
    for (int stage = 0; stage < Traits::kStages; ++stage) {
      const std::string number = std::to_string(stage);
      barriers_[&shared.q.full[stage]] = "q full " + number;
      barriers_[&shared.q.empty[stage]] = "q empty " + number;
      barriers_[&shared.d_o.full[stage]] = "do full " + number;
      barriers_[&shared.d_o.empty[stage]] = "do empty " + number;
      places_[&shared.q.tile[stage]] = {"Q", sizeof(shared.q.tile[stage]), stage};
      places_[&shared.d_o.tile[stage]] = {"dO", sizeof(shared.d_o.tile[stage]), stage};
      places_[&shared.ds[stage]] = {"dS", sizeof(shared.ds[stage]), stage};
      barriers_[&shared.dq_full[stage]] = "dq full " + number;  // the consumers also have two of these
      barriers_[&shared.dq_empty[stage]] = "dq empty " + number;
    }
    barriers_[&shared.keys_full] = "keys full";
    barriers_[&shared.keys_empty] = "keys empty";
    places_[&shared.k] = {"K", sizeof(shared.k), 0};
    places_[&shared.v] = {"V", sizeof(shared.v), 0};
  }

  void releases(int thread, const void* object) override { all_of(thread, "arrives", object, arrived_); }
  void completes(const void* object) override {
    if (const std::string* name = name_of(object)) tell(-1, "over", *name);
  }
  void acquires(int thread, const void* object) override { all_of(thread, "passes", object, passed_); }

  uint32_t begins_async(const void*) override { return ++tickets_; }
  void touches_async(int thread, const void* object, uint32_t ticket, const sim::Touched& touched) override {
    const auto [place, stage] = place_of(touched.address);
    if (touched.instruction == std::string_view("wgmma")) {
      Product& product = products_[ticket];
      product.consumer = thread;
      product.reads.insert(place);
      return;
    }
    if (place.empty()) {  // a part of dQ
      if (touched.access == sim::Access::load) tell(thread, "adds", "dQ");
      adding_ = object;
    } else if (loading_ != place + std::to_string(stage)) {  // a tile is loaded panel by panel
      loading_ = place + std::to_string(stage);
      tell(thread, "loads", place + (place == "K" || place == "V" ? "" : " " + std::to_string(stage)));
    }
  }
  void knows_async_done(int thread, const void* object, uint32_t ticket) override {
    if (thread < kWarpgroup && object == adding_) tell(thread, "has read", "dQ");
    if (thread < kWarpgroup || thread % kWarpgroup != 0) return;
    flush();
    std::string names;
    while (!under_way_[thread / kWarpgroup].empty() &&
           under_way_[thread / kWarpgroup].front().first <= ticket) {
      auto& queue = under_way_[thread / kWarpgroup];
      names += (names.empty() ? "" : " ") + queue.front().second;
      queue.erase(queue.begin());
    }
    if (!names.empty()) tell(thread, "has", names);
  }

 private:
  struct Place {
    std::string name;
    std::size_t bytes;
    int stage;
  };
  using Warps = std::map<std::pair<int, const void*>, int>;  ///< warps at a consumer's barrier
  struct Product {
    int consumer;
    std::set<std::string> reads;  ///< the tiles
  };

  /// Returns a barrier's name, including that of the barrier between the consumers, or null. The first
  /// barrier that is not an mbarrier is __syncthreads.
  const std::string* name_of(const void* object) {
    const auto* byte = static_cast<const unsigned char*>(object);
    if (byte < memory_ || byte >= memory_ + sizeof(Shared)) {
      if (!whole_block_) whole_block_ = object;
      static const std::string between = "ds written";
      return object == whole_block_ ? nullptr : &between;
    }
    const auto found = barriers_.find(object);
    return found == barriers_.end() ? nullptr : &found->second;
  }
  /// Reports what a producer's thread does, and what a consumer's warps do when the first lanes of all of
  /// them have done it.
  void all_of(int thread, const char* what, const void* object, Warps& warps) {
    const std::string* name = name_of(object);
    if (!name || (thread >= kWarpgroup && thread % 32 != 0)) return;
    if (thread >= kWarpgroup && ++warps[{thread / kWarpgroup, object}] % kWarpsPerWarpgroup != 0) return;
    tell(thread, what, *name);
  }
  std::pair<std::string, int> place_of(const void* address) const {
    for (const auto& [begin, place] : places_) {
      const auto* first = static_cast<const unsigned char*>(begin);
      if (address >= first && address < first + place.bytes) return {place.name, place.stage};
    }
    return {};
  }

  /// Reports the products issued since the last event, of several instructions each.
  void flush() {
    static const std::map<std::set<std::string>, std::string> names = {
        {{"K", "Q"}, "S"}, {{"V", "dO"}, "dP"}, {{"dO"}, "dV"}, {{"dS", "K"}, "dQ"}, {{"Q"}, "dK"}};
    const auto products = std::move(products_);
    products_.clear();
    for (const auto& [ticket, product] : products) {
      auto& queue = under_way_[product.consumer / kWarpgroup];
      const std::string& name = names.at(product.reads);
      if (queue.empty() || queue.back().second != name) {
        queue.emplace_back(ticket, name);
        print(product.consumer, "issues", name);
      }
      queue.back().first = ticket;
    }
  }
  void tell(int thread, const char* what, const std::string& object) {
    flush();
    if (thread >= 0 && std::string_view(what) != "loads") loading_.clear();
    print(thread, what, object);
  }
  /// The actors: the threads that load Q, and K, V and dO; those that add; the consumers. -1 is a barrier
  /// itself.
  static void print(int thread, const char* what, const std::string& object) {
    const int who = thread < 0 ? -1 : thread < kWarpgroup ? thread / 32 : 3 + thread / kWarpgroup;
    std::printf("%s[%d, \"%s\", \"%s\"]", told++ ? "," : "", who, what, object.c_str());
  }

  const unsigned char* memory_ = nullptr;
  std::map<const void*, std::string> barriers_;
  std::map<const void*, Place> places_;
  Warps arrived_, passed_;
  std::map<uint32_t, Product> products_;  // issued but not yet reported
  std::array<std::vector<std::pair<uint32_t, std::string>>, 3> under_way_;
  const void *whole_block_ = nullptr, *adding_ = nullptr;
  std::string loading_;
  uint32_t tickets_ = 0;
};

using Watcher = testing::RecordingWatcher<Recorder>;

/// Runs a block of a kernel and records what happens.
template <typename... Params, typename... Args>
void run_watched(void (*kernel)(Params...), const Args&... args) {
  const auto parameters = sim::parameters<Params...>(args...);
  Watcher watcher;
  sim::run_grid(
      dim3(1), dim3(Traits::kThreads), sizeof(Shared), [&] { parameters.pass_to(kernel); }, nullptr,
      &watcher);
}

void run_block() {
  const Spec spec{{.batch = 1,
                   .heads = 1,
                   .kv_heads = 1,
                   .seqlen_q = kRounds * Traits::kQueries,
                   .seqlen_k = kTileKeys,
                   .head_dim = Traits::kHeadDim,
                   .dtype = DType::bf16,
                   .scale = default_scale(Traits::kHeadDim)}};
  const auto buffer = [](std::size_t bytes) { return device::Buffer(device::Place::device, bytes); };
  const std::size_t rows = std::size_t(spec.seqlen_q) * Traits::kHeadDim * sizeof(Element);
  const device::Buffer q = buffer(rows), d_o = buffer(rows), k = buffer(rows), v = buffer(rows),
                       dk = buffer(rows), dv = buffer(rows),
                       sums = buffer(std::size_t(bytes_of_workspace(spec, kWorkspaceRows, true)));
  Tensors tensors;
  tensors.workspace = sums.data();
  const Workspace workspace = workspace_of(spec, kWorkspaceRows, tensors);
  const TileMap q_map = tile_map(spec, TensorId::q, q.data(), Traits::kQueries),
                k_map = tile_map(spec, TensorId::k, k.data(), kTileKeys),
                v_map = tile_map(spec, TensorId::v, v.data(), kTileKeys),
                do_map = tile_map(spec, TensorId::d_o, d_o.data(), Traits::kQueries);
  const CUtensorMap lse_map = row_map(workspace.lse, spec.seqlen_q, Traits::kQueries),
                    d_map = row_map(workspace.d, spec.seqlen_q, Traits::kQueries);
  run_watched(hopper_backward<Element, Traits>, q_map, k_map, v_map, do_map, lse_map, d_map,
              static_cast<Element*>(dk.data()), static_cast<Element*>(dv.data()), workspace,
              problem_of(spec, kWorkspaceRows), key_order(spec, false), nullptr, nullptr);
}

}  // namespace
}  // namespace flashbook

int main() {
  using namespace flashbook;
  struct Landing {
    const char* name;
    sim::Async async;
    uint64_t seed;
  };
  constexpr Landing kLandings[] = {
      {"late", sim::Async::lazy, 0}, {"at once", sim::Async::eager, 0}, {"seed 1", sim::Async::random, 1}};
  std::printf("{\"rounds\": %d, \"runs\": {", kRounds);
  for (const Landing& landing : kLandings) {
    sim::options() = {.os_threads = 1, .seed = landing.seed, .async = landing.async};
    Recorder::told = 0;
    std::printf("%s\"%s\": [", &landing == kLandings ? "" : ", ", landing.name);
    run_block();
    std::printf("]");
  }
  std::printf("}}\n");
}
