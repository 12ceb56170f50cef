/// \file
/// Prints the data of chapter 5's drawings and its table of phases as JSON, which hopper_figures.py stores in
/// docs/figures. The layouts come from common/ptx; what WGMMA reads and how the pipeline's barriers change
/// phase is what the simulator sees while the chapter's own functions run. With the argument `rings` it
/// prints the events of the many pipelines in the interactive figure.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/05_flash_attention_3/specialised.cuh"
#include "common/device/device.h"
#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/simulator/observer.h"

namespace flashbook {
namespace {

using namespace fa3;
using namespace hopper;
using Element = __nv_bfloat16;

/// Shared memory of the products: tiles as at d = 128.
constexpr int kHeadDim = 128, kKeys = 128;
struct Products {
  Tile<Element, kRowsPerWarpgroup, kHeadDim> q;
  Tile<Element, kKeys, kHeadDim> k, v;
};

/// Scores and values of one tile of keys, as every step issues them.
__global__ void products() {
  Products& shared = *dynamic_shared<Products>();
  float scores[kKeys / 2] = {}, output[kHeadDim / 2] = {};
  Fragments<kKeys> p = {};
  wgmma_fence();
  issue_scores<Element, kHeadDim>(scores, k_major(shared.q), k_major(shared.k));
  issue_accumulate<Element>(output, p, mn_major(shared.v));
  wgmma_wait<0>();
}

/// Small tiles of 8 KB.
constexpr int kTiles = 3;
using SmallTile = Tile<Element, 64, kPanel>;
template <int kStages>
using SmallPipeline = Pipeline<SmallTile, kStages>;

/// The traits of the small tiles that the producer needs.
template <int kStages_>
struct SmallTraits : Unrecorded {
  static constexpr int kKeys = 64, kStages = kStages_;
};

/// Faults that a run may have.
enum class Fault { none, wrong_first_parity, missing_release };

/// One thread streams tiles; every consumer takes and releases every tile.
template <int kStages>
void walk(const TileMap& k_map, const TileMap& v_map, Fault fault) {
  SmallPipeline<kStages>& pipeline = *dynamic_shared<SmallPipeline<kStages>>();
  if (threadIdx.x == 0) {
    initialise(pipeline, 1, (blockDim.x / kWarpgroup - 1) * kWarpsPerWarpgroup, "full", "empty");
    fence_mbarrier_init();
  }
  __syncthreads();
  PipelineState<kStages> state;
  if (threadIdx.x == 0) {
    if (fault == Fault::wrong_first_parity) state.phase = 1;
    stream<SmallTraits<kStages>, false>(pipeline, state, k_map, v_map, kTiles, {0, 0});
  }
  if (threadIdx.x < kWarpgroup) return;
  const bool forgets = fault == Fault::missing_release && threadIdx.x / 32 == kWarpsPerWarpgroup;
  for (int i = 0; i < 2 * kTiles; ++i) {
    wait_full(pipeline, state);
    __syncwarp();
    if (!forgets) release(pipeline, state);
    state.advance();
  }
}

/// Records the 16-byte pieces of K and V that each wgmma reads, and prints what happens at the pipeline's
/// barriers and their state after each event.
class Recorder : public sim::Observer {
 public:
  using Reads = std::map<uint32_t, std::vector<int>>;  // offsets in the tile, by the product's ticket
  static inline Reads k_reads, v_reads;
  static inline const unsigned char *keys = nullptr, *values = nullptr;  // the tensors in device memory
  static inline bool plays = false;  // prints a line for every wait that passes and every copy that begins
  static inline void (Recorder::*name_barriers)(int threads) = nullptr;

  void block_begins(const sim::Block& block) override {
    shared_ = block.dynamic_shared;
    if (name_barriers) (this->*name_barriers)(block.threads);
  }
  template <int kStages>
  void name_barriers_of(int threads) {
    const auto* pipeline = reinterpret_cast<const SmallPipeline<kStages>*>(shared_);
    const int warps = (threads / kWarpgroup - 1) * kWarpsPerWarpgroup;
    for (int stage = 0; stage < kStages; ++stage) {
      const std::string index = "[" + std::to_string(stage) + "]";
      barriers_[&pipeline->full[stage]] = {"full" + index, true, 1, 1};
      barriers_[&pipeline->empty[stage]] = {"empty" + index, false, warps, warps};
    }
  }
  void releases(int thread, const void* object) override {
    Barrier* barrier = find(object);
    if (!barrier) return;
    --barrier->pending;
    if (barrier->full) barrier->bytes += SmallTile::kBytes;
    tell(barrier->full ? "producer announces"
                       : "warp " + std::to_string(thread / 32 - kWarpsPerWarpgroup) + " gives back",
         *barrier);
  }
  void completes(const void* object) override {
    Barrier* barrier = find(object);
    if (!barrier) return;
    if (barrier->pending != 0 || barrier->bytes != 0) std::abort();  // this count and the simulator's differ
    ++barrier->phase;
    barrier->pending = barrier->arrivals;
    tell("over", *barrier);
  }
  void acquires(int thread, const void* object) override {
    Barrier* barrier = find(object);
    if (!barrier) return;
    if (thread == 0) tell("producer passes", *barrier);
    if (plays && thread >= kWarpgroup && thread % 32 == 0)
      tell("warp " + std::to_string(thread / 32 - kWarpsPerWarpgroup) + " passes", *barrier);
    // The first of the consumer's threads.
    if (!plays && thread >= kWarpgroup && barrier->passed != barrier->phase)
      tell("consumer passes", *barrier);
    barrier->passed = barrier->phase;
  }
  uint32_t begins_async(const void* object) override {
    const Barrier* barrier = find(object);
    if (plays && barrier) tell("producer copies", *barrier);
    return ++tickets_;
  }
  void touches_async(int, const void* object, uint32_t ticket, const sim::Touched& touched) override {
    if (touched.instruction != std::string_view("wgmma")) {
      loading_ = find(object);
      return;
    }
    const auto offset = std::size_t(static_cast<const unsigned char*>(touched.address) - shared_);
    if (offset >= offsetof(Products, v))
      v_reads[ticket].push_back(int(offset - offsetof(Products, v)));
    else if (offset >= offsetof(Products, k))
      k_reads[ticket].push_back(int(offset - offsetof(Products, k)));
  }
  void streams(int, const void*, uint32_t, const sim::Touched& touched) override {
    const auto* row = static_cast<const unsigned char*>(touched.address);
    const bool is_key = row >= keys && row < keys + kTiles * SmallTile::kBytes;
    loading_->tile =
        (is_key ? "K" : "V") + std::to_string((row - (is_key ? keys : values)) / SmallTile::kBytes);
  }
  void arrives_async(const void* object, uint32_t) override { find(object)->bytes -= SmallTile::kBytes; }

  // All other events are ignored.
  void block_ends() override {}
  void touches(int, const sim::Touched&) override {}
  void reads_for_warp(int, const sim::Touched&) override {}
  void lands(int, const sim::Touched&) override {}
  void converges(int, uint32_t) override {}
  void joins(int, uint32_t) override {}
  void waits_for_launch_before(int) override {}
  void lets_dependents_launch(int) override {}
  void fences(int) override {}
  void fences_proxy(int, sim::Proxied) override {}
  void knows_async_done(int, const void*, uint32_t) override {}
  void takes_registers(int, const void*, std::size_t, const char*, sim::Location) override {}
  void gives_back_registers(int, const void*) override {}

 private:
  struct Barrier {
    std::string name;
    bool full;  ///< false: empty
    int arrivals, pending, phase = 0;
    long bytes = 0;
    int passed = 0;         ///< the phase in which a wait last passed
    std::string tile = "";  ///< in flight or loaded
  };

  Barrier* find(const void* object) {
    const auto found = barriers_.find(object);
    return found == barriers_.end() ? nullptr : &found->second;
  }
  void tell(const std::string& what, const Barrier& at) {
    if (plays) {
      std::printf("%s, %s %d %d %ld %s\n", what.c_str(), at.name.c_str(), at.phase, at.pending, at.bytes,
                  at.tile.c_str());
      return;
    }
    std::printf("%s\n  {\"what\": \"%s\", \"barrier\": \"%s\", \"tile\": \"%s\"", told_++ ? "," : "",
                what.c_str(), at.name.c_str(), at.tile.c_str());
    for (const auto& [object, barrier] : barriers_)
      std::printf(", \"%s\": [%d, %d, %ld]", barrier.name.c_str(), barrier.phase, barrier.pending,
                  barrier.bytes);
    std::printf("}");
  }

  const unsigned char* shared_ = nullptr;
  std::map<const void*, Barrier> barriers_;
  Barrier* loading_ = nullptr;  ///< the barrier of the rows being loaded
  uint32_t tickets_ = 0;
  int told_ = 0;
};

struct Watcher : sim::Watcher {
  std::unique_ptr<sim::Observer> make_observer() override { return std::make_unique<Recorder>(); }
  void grid_begins(const sim::Launch&) override {}
  std::string grid_ends() override { return ""; }
};

CUtensorMap map_of(const device::Buffer& tensor) {
  return device::tensor_map(
      {.dtype = DType::bf16,
       .base = tensor.data(),
       .size = {kPanel, kTiles * 64, 1, 1, 1},
       .stride = {kPanelRowBytes, kPanelRowBytes, kTiles * SmallTile::kBytes, kTiles * SmallTile::kBytes},
       .box = {kPanel, 64, 1, 1, 1},
       .swizzle = Swizzle::b128});
}

void print(const std::vector<int>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) std::printf("%s%d", i ? ", " : "[", numbers[i]);
  std::printf("]");
}

/// Prints the row and column of each element that each thread holds.
template <typename PlaceOf>
void print_places(const char* name, PlaceOf place_of) {
  std::vector<int> numbers;
  for (int thread = 0; thread < kWarpgroup; ++thread)
    for (int i = 0; i < WgmmaM64<kKeys>::kElementsA16; ++i) {
      const MatrixPlace place = place_of(thread, i);
      numbers.insert(numbers.end(), {place.row, place.column});
    }
  std::printf("\"%s\": ", name);
  print(numbers);
  std::printf(",\n");
}

void print_reads(const char* name, const Recorder::Reads& reads) {
  std::printf("\"%s\": [", name);
  const char* before = "\n  ";
  for (const auto& [ticket, offsets] : reads) {
    std::printf("%s", before);
    print(offsets);
    before = ",\n  ";
  }
  std::printf("],\n");
}

/// The tensors of a run.
struct Keys {
  device::Buffer k{device::Place::device, kTiles*SmallTile::kBytes},
      v{device::Place::device, kTiles*SmallTile::kBytes};
  CUtensorMap k_map = map_of(k), v_map = map_of(v);
};

template <int kStages>
void run_walk(const Keys& tensors, int consumers, Fault fault) {
  Watcher watcher;
  Recorder::keys = static_cast<const unsigned char*>(tensors.k.data());
  Recorder::values = static_cast<const unsigned char*>(tensors.v.data());
  Recorder::name_barriers = &Recorder::name_barriers_of<kStages>;
  const TileMap k_map = {tensors.k_map, false}, v_map = {tensors.v_map, false};  // whole tiles
  sim::run_grid(
      dim3(1), dim3((1 + consumers) * kWarpgroup), sizeof(SmallPipeline<kStages>),
      [&] { walk<kStages>(k_map, v_map, fault); }, nullptr, &watcher);
}

/// Prints the figure's pipelines, each with a line of its settings, its events, and what the simulator
/// reports if it does not finish.
template <int kStages>
void print_rings(const Keys& tensors) {
  struct Landing {
    const char* name;
    sim::Async async;
    uint64_t seed;
  };
  constexpr Landing kLandings[] = {{"late", sim::Async::lazy, 0},
                                   {"at once", sim::Async::eager, 0},
                                   {"seed 1", sim::Async::random, 1},
                                   {"seed 2", sim::Async::random, 2}};
  constexpr const char* kFaults[] = {"none", "wrong first parity", "missing release"};
  for (int consumers = 1; consumers <= 2; ++consumers)
    for (const Landing& landing : kLandings)
      for (const Fault fault : {Fault::none, Fault::wrong_first_parity, Fault::missing_release}) {
        sim::options() = {.os_threads = 1, .seed = landing.seed, .async = landing.async};
        std::printf("run: %d, %d, %s, %s\n", kStages, consumers, landing.name, kFaults[int(fault)]);
        try {
          run_walk<kStages>(tensors, consumers, fault);
        } catch (const sim::Error& error) {
          std::printf("report:\n%s\n", error.what());
        }
      }
}

void print_layouts() {
  sim::options() = {.os_threads = 1, .seed = 0, .async = sim::Async::lazy};
  Watcher watcher;
  sim::run_grid(dim3(1), dim3(kWarpgroup), sizeof(Products), products, nullptr, &watcher);
  std::printf("{\n");
  print_places("d", [](int thread, int i) { return WgmmaM64<kKeys>::d(thread, i); });
  print_places("a", [](int thread, int i) { return WgmmaM64<kKeys>::a16(thread, i); });
  print_reads("k", Recorder::k_reads);
  print_reads("v", Recorder::v_reads);
  std::printf("\"ring\": [");
  run_walk<2>(Keys(), 1, Fault::none);
  std::printf("]\n}\n");
}

}  // namespace
}  // namespace flashbook

int main(int argc, char** argv) {
  using namespace flashbook;
  if (argc == 1) {
    print_layouts();
  } else if (argc == 2 && argv[1] == std::string_view("rings")) {
    Recorder::plays = true;
    const Keys tensors;
    print_rings<1>(tensors);
    print_rings<2>(tensors);
    print_rings<3>(tensors);
  } else {
    std::fprintf(stderr, "hopper_layouts [rings]\n");
    return 2;
  }
}
