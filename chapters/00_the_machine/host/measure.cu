#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "chapters/00_the_machine/arithmetic.cuh"
#include "chapters/00_the_machine/host/counted.h"
#include "chapters/00_the_machine/host/measure.h"
#include "chapters/00_the_machine/host/wgmma.h"
#include "chapters/00_the_machine/memory.cuh"
#include "common/device/launch.h"

namespace flashbook::machine {
namespace {

using device::Buffer;
using device::Machine;
using device::Place;

constexpr const char* kNoTime = "not timed in the simulator";
constexpr const char* kNoTrace = "not counted: this build is not traced";
constexpr const char* kNeedsHopper = "needs a Hopper GPU";

template <typename T>
Buffer on_device(const std::vector<T>& values) {
  Buffer buffer(Place::device, values.size() * sizeof(T));
  buffer.upload(std::as_bytes(std::span(values)));
  return buffer;
}

template <typename T>
std::vector<T> on_host(const Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  buffer.download(std::as_writable_bytes(std::span(values)));
  return values;
}

template <typename T>
T* pointer(const Buffer& buffer) {
  return static_cast<T*>(buffer.data());
}

template <typename... Params, typename... Args>
void launch(void (*kernel)(Params...), int blocks, int threads, Args... args) {
  device::launch(kernel, dim3(unsigned(blocks)), dim3(unsigned(threads)), 0, nullptr, args...);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ptrdiff_t(values.size() / 2));
  return values[values.size() / 2];
}

/// Nodes in device memory, linked in random order into one ring.
class Ring {
 public:
  explicit Ring(int length)
      : nodes_(Place::device, std::size_t(length) * sizeof(Node)), order_(std::size_t(length)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
    std::vector<Node> nodes(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) nodes[std::size_t(order_[i])].next = at(int64_t(i) + 1);
    nodes_.upload(std::as_bytes(std::span(nodes)));
  }
  int length() const { return int(order_.size()); }
  /// Returns the address of the node that is `place` hops from the first.
  const Node* at(int64_t place) const {
    return pointer<Node>(nodes_) + order_[std::size_t(place % int64_t(order_.size()))];
  }

 private:
  Buffer nodes_;
  std::vector<int> order_;
};

constexpr int kMaxWarpsPerBlock = 32;
constexpr uint32_t kOnes = 0x3c003c00;  // 1, 1 in f16

/// Measures one quantity after another, and keeps the results.
class Session {
 public:
  explicit Session(const std::function<void(const std::string&)>& progress)
      : info_(device::info()), gpu_(info_.machine == Machine::gpu), progress_(progress) {}

  std::vector<Measurement> take() { return std::move(found_); }

  void latencies();
  void warps();
  void rates();
  void bandwidths();
  void strides();
  void banks();
  void additions();

 private:
  /// The cost of a launch.
  struct Taken {
    double seconds, clocks;  // medians over launches, and over their blocks
  };

  /// Launches five times on a GPU, after a warm-up launch, and once in the simulator. Calls `prepare` before
  /// each launch.
  Taken time(
      int blocks, const std::function<void(int64_t*)>& work, const std::function<void()>& prepare = [] {}) {
    Buffer clocks(Place::device, std::size_t(blocks) * sizeof(int64_t));
    std::vector<double> seconds, medians;
    for (int run = 0; run < (gpu_ ? 6 : 1); ++run) {
      prepare();
      const double time = device::time_on_device(nullptr, [&] { work(pointer<int64_t>(clocks)); });
      if (gpu_ && run == 0) continue;
      const std::vector<int64_t> counted = on_host<int64_t>(clocks);
      seconds.push_back(time);
      medians.push_back(median({counted.begin(), counted.end()}));
    }
    return {median(seconds), median(medians)};
  }

  /// Times a kernel whose last two arguments are a sum for each thread, which must be `wanted`, and the
  /// clocks.
  Taken compute(const std::string& name, int blocks, int threads, double wanted, double tolerance,
                auto kernel, auto... arguments) {
    Buffer result = sums(blocks, threads);
    const Taken taken = time(blocks, [&](int64_t* clocks) {
      launch(kernel, blocks, threads, arguments..., pointer<float>(result), clocks);
    });
    expect(name, result, wanted, tolerance);
    return taken;
  }

  /// Measures the clocks per hop of a warp. `warps_of_sm` warps walk on each of `multiprocessors`.
  Taken walk(
      const std::string& name, const Ring& ring, int multiprocessors, int warps_of_sm, int warm, int hops,
      const std::function<void()>& prepare = [] {});

  /// Records a result that depends on time: `value` on a GPU; in the simulator, that it is unknown.
  void timed(const std::string& name, const std::string& what, const std::string& quantity, double value,
             const Taken& taken) {
    if (!gpu_) return unknown(name, what, quantity, kNoTime);
    found_.push_back({name, what, quantity, value, "", taken.seconds});
  }

  void unknown(const std::string& name, const std::string& what, const std::string& quantity,
               const char* why_not) {
    found_.push_back({name, what, quantity, std::nullopt, why_not, 0});
  }

  /// Measures a load from shared or global memory whose lanes are apart: its time on a GPU, and the tracer's
  /// counts in the simulator.
  void apart(bool shared, const std::string& quantity,
             const std::function<Taken(const std::string&, int)>& load,
             const std::function<std::string(int)>& what, const std::function<double(const Taken&)>& value) {
    constexpr int kStrides[] = {1, 2, 4, 8, 16, 32};
    const auto name = [&](int stride) { return (shared ? "bank/s" : "stride/s") + std::to_string(stride); };
    units_of_loads(shared);  // discards the counts of earlier launches
    std::vector<Taken> taken;
    for (int stride : kStrides) taken.push_back(load(name(stride), stride));
    if (gpu_) {
      for (std::size_t i = 0; i < taken.size(); ++i)
        timed(name(kStrides[i]), what(kStrides[i]), quantity, value(taken[i]), taken[i]);
      return;
    }
    const std::vector<double> units = units_of_loads(shared);
    const char* const counted = shared ? "wavefronts" : "sectors";
    for (std::size_t i = 0; i < taken.size(); ++i)
      if (i < units.size())
        found_.push_back({name(kStrides[i]), what(kStrides[i]), counted, units[i], "", 0});
      else
        unknown(name(kStrides[i]), what(kStrides[i]), counted, kNoTrace);
  }

  void expect(const std::string& name, const Buffer& sums, double wanted, double tolerance = 0) const {
    for (float sum : on_host<float>(sums))
      if (!(std::abs(double(sum) - wanted) <= tolerance))
        throw WrongResult(name + ": a thread has " + std::to_string(sum) + " and should have " +
                          std::to_string(wanted));
  }

  /// Allocates the sums of all threads in a grid.
  static Buffer sums(int blocks, int threads) {
    return Buffer(Place::device, std::size_t(blocks) * std::size_t(threads) * sizeof(float));
  }

  device::Info info_;
  bool gpu_;
  std::function<void(const std::string&)> progress_;
  std::vector<Measurement> found_;
};

Session::Taken Session::walk(const std::string& name, const Ring& ring, int multiprocessors, int warps_of_sm,
                             int warm, int hops, const std::function<void()>& prepare) {
  const int warps = std::min(warps_of_sm, kMaxWarpsPerBlock),
            blocks = multiprocessors * (warps_of_sm / warps);
  // Warps of one multiprocessor walk parts of the ring that do not overlap, so none finds in the L1 what
  // another has loaded. The same warp of the next multiprocessor walks a few hops behind.
  std::vector<int64_t> places;
  for (int block = 0; block < blocks; ++block)
    for (int warp = 0; warp < warps; ++warp)
      places.push_back(int64_t(block / multiprocessors * warps + warp) * (ring.length() / warps_of_sm) +
                       block % multiprocessors * 7);
  std::vector<const Node*> starts;
  for (int64_t place : places) starts.push_back(ring.at(place));
  const Buffer from = on_device(starts);
  Buffer ends(Place::device, from.bytes());
  const auto work = [&](int64_t* clocks) {
    launch(walk_chain, blocks, warps * 32, pointer<const Node*>(from), warm, hops, pointer<const Node*>(ends),
           clocks);
  };
  const Taken taken = time(blocks, work, prepare);
  const std::vector<const Node*> reached = on_host<const Node*>(ends);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (reached[i] != ring.at(places[i] + warm + hops))
      throw WrongResult(name + ": a warp ended at another node");
  return taken;
}

void Session::latencies() {
  const int hops = gpu_ ? 2048 : 64, rounds = gpu_ ? 4096 : 64;
  progress_("latencies");
  const auto arithmetic = [&](const std::string& name, const std::string& what, double wanted,
                              double tolerance, auto kernel, auto... arguments) {
    const Taken taken = compute(name, 1, 32, wanted, tolerance, kernel, arguments..., rounds);
    timed(name, what, "clocks", taken.clocks / rounds, taken);
  };
  arithmetic("latency/multiply_add", "multiply-add, from one to the next that needs it", 2, 1e-5,
             multiply_add<1>, 0.5f, 1.0f);
  arithmetic("latency/exponential", "exponential", 0.6411857, 1e-4, exponentials<1>);
  arithmetic("latency/warp_product", "product of mma.sync", 4.0 * 16 * rounds, 0, warp_products<1>, kOnes);

  std::vector<int> order(kSharedLinks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin() + 1, order.end(), std::mt19937(1));  // the walk begins at link 0
  std::vector<uint32_t> links(kSharedLinks);
  for (int i = 0; i < kSharedLinks; ++i)
    links[std::size_t(order[std::size_t(i)])] = uint32_t(order[std::size_t((i + 1) % kSharedLinks)]) * 4;
  const Buffer from = on_device(links);
  Buffer end(Place::device, sizeof(uint32_t));
  const Taken taken = time(1, [&](int64_t* clocks) {
    launch(walk_shared_chain, 1, 32, pointer<uint32_t>(from), hops, pointer<uint32_t>(end), clocks);
  });
  if (on_host<uint32_t>(end)[0] != uint32_t(order[std::size_t(hops % kSharedLinks)]) * 4)
    throw WrongResult("latency/shared: the walk ended at another link");
  timed("latency/shared", "shared memory, a hop", "clocks", taken.clocks / hops, taken);

  const auto hop = [&](const std::string& name, const std::string& what, int length, int warm, bool flushed) {
    const Ring ring(gpu_ ? length : 256);
    const Taken taken = walk(name, ring, 1, 1, gpu_ ? warm : 0, hops, [&] {
      if (flushed) device::flush_l2(nullptr);
    });
    timed(name, what, "clocks", taken.clocks / hops, taken);
  };
  hop("latency/l1", "L1 cache, a hop: 32 KB", 256, 256, false);
  hop("latency/l2", "L2 cache, a hop: 8 MB", 65536, 65536, false);
  hop("latency/device", "device memory, a hop: 256 MB", 2 << 20, 0, true);
}

void Session::warps() {
  const std::vector<int> counts = gpu_ ? std::vector{1, 2, 4, 8, 16, 32, 64} : std::vector{1, 2, 4};
  const int multiprocessors = info_.multiprocessors, rounds = gpu_ ? 4096 : 64, hops = gpu_ ? 1000 : 16;
  const auto text = [](int warps) { return std::to_string(warps) + (warps > 1 ? " warps" : " warp"); };
  progress_("warps that fill each other's waiting time");
  for (int warps : counts) {
    const std::string name = "warps/multiply_add/w" + std::to_string(warps);
    const int block_warps = std::min(warps, kMaxWarpsPerBlock),
              blocks = multiprocessors * (warps / block_warps);
    const Taken taken = compute(name, blocks, block_warps * 32, 2, 1e-5, multiply_add<1>, 0.5f, 1.0f, rounds);
    timed(name, "multiply-adds of " + text(warps) + ", one every", "clocks",
          taken.clocks / (double(rounds) * warps), taken);
  }
  const Ring ring(gpu_ ? 65536 : 256);
  for (int warps : counts) {
    const std::string name = "warps/l2/w" + std::to_string(warps);
    const Taken taken = walk(name, ring, multiprocessors, warps, 0, hops);
    timed(name, "loads of " + text(warps) + " from the L2, one every", "clocks",
          taken.clocks / (double(hops) * warps), taken);
  }
}

void Session::rates() {
  const int blocks = info_.multiprocessors, threads = gpu_ ? 1024 : 64, rounds = gpu_ ? 2048 : 32;
  constexpr int kChains = 8;
  progress_("rates of arithmetic");
  const auto rate = [&](const std::string& name, const std::string& what, int threads, double operations,
                        double wanted, double tolerance, auto kernel, auto... arguments) {
    const Taken taken = compute(name, blocks, threads, wanted, tolerance, kernel, arguments..., rounds);
    timed(name, what, "per_clock", operations * rounds * kChains / taken.clocks, taken);
  };
  rate("rate/multiply_add", "multiply-adds a clock, of a multiprocessor", threads, threads, 2 * kChains, 1e-4,
       multiply_add<kChains>, 0.5f, 1.0f);
  rate("rate/exponential", "exponentials a clock", threads, threads, 0.6411857 * kChains, 1e-3,
       exponentials<kChains>);
  const int product_threads = gpu_ ? 512 : 64;
  rate("rate/warp_product", "FLOPs a clock with mma.sync", product_threads,
       double(kMmaFlops) * (product_threads / 32), 4.0 * 16 * rounds * kChains, 0, warp_products<kChains>,
       kOnes);

  const std::string name = "rate/warpgroup_product", what = "FLOPs a clock with wgmma";
  if (info_.compute_capability != 90) return unknown(name, what, "per_clock", kNeedsHopper);
  const int groups = gpu_ ? 256 : 2;
  Buffer result = sums(blocks, kWgmmaThreads);
  const Taken taken = time(blocks, [&](int64_t* clocks) {
    launch_warpgroup_products(blocks, groups, pointer<float>(result), clocks);
  });
  expect(name, result, 128.0 * wgmma_element(groups));
  timed(name, what, "per_clock", 2 * kWgmmaFlopsPerRound * groups / taken.clocks, taken);
}

void Session::bandwidths() {
  const int blocks = 2 * info_.multiprocessors, threads = gpu_ ? 1024 : 32;
  progress_("bandwidths");
  {
    const int64_t count = gpu_ ? int64_t(32) << 20 : 256;  // 16-byte units: 512 MB
    Buffer from(Place::device, std::size_t(count) * sizeof(float4)), to(Place::device, from.bytes());
    launch(fill, blocks, threads, pointer<float>(from), 1.0f, 4 * count);
    const Taken taken = time(1, [&](int64_t*) {
      launch(copy, blocks, threads, pointer<float4>(to), pointer<float4>(from), count);
    });
    expect("bandwidth/device_copy", to, 1);
    timed("bandwidth/device_copy", "device memory, bytes read and written by a copy", "bytes_per_second",
          2.0 * double(from.bytes()) / taken.seconds, taken);
  }
  const int64_t count = int64_t(blocks) * threads * kChunk;  // 16-byte units: 17 MB on an H200
  const int rounds = gpu_ ? 64 : 2;
  Buffer data(Place::device, std::size_t(count) * sizeof(float4)), result = sums(blocks, threads);
  launch(fill, blocks, threads, pointer<float>(data), 1.0f, 4 * count);
  const auto read = [&](const char* name, const char* what, auto kernel) {
    const Taken taken = time(1, [&](int64_t*) {
      launch(kernel, blocks, threads, pointer<float4>(data), rounds, pointer<float>(result));
    });
    expect(name, result, 4.0 * kChunk * rounds);
    timed(name, what, "bytes_per_second", double(data.bytes()) * rounds / taken.seconds, taken);
  };
  read("bandwidth/l2_read", "L2, bytes read by all multiprocessors", read_again<false>);
  read("bandwidth/l2_scattered", "L2, lines read at random places", read_again<true>);
}

void Session::strides() {
  const int blocks = gpu_ ? 2 * info_.multiprocessors : 1, threads = gpu_ ? 1024 : 64;
  int64_t count =
      gpu_ ? int64_t(64) << 20 : 256;  // floats that are loaded: 256 MB, out of 8 GB at the widest stride
  while (gpu_ && count * 4 * 32 > info_.memory_free / 2) count /= 2;
  progress_("strides");
  Buffer data(Place::device, std::size_t(count) * 32 * sizeof(float)), result = sums(blocks, threads);
  launch(fill, blocks, threads, pointer<float>(data), 1.0f, count * 32);
  const auto load = [&](const std::string& name, int stride) {
    const auto work = [&](int64_t*) {
      launch(load_strided, blocks, threads, pointer<float>(data), stride, count, pointer<float>(result));
    };
    const Taken taken = time(1, work, [] { device::flush_l2(nullptr); });
    double sum = 0;
    for (float part : on_host<float>(result)) sum += part;
    if (sum != double(count)) throw WrongResult(name + ": the sum is " + std::to_string(sum));
    return taken;
  };
  apart(
      false, "bytes_per_second", load,
      [&](int stride) {
        return std::string(gpu_ ? "useful bytes" : "of a warp's load") + ", lanes " +
               std::to_string(4 * stride) + " bytes apart";
      },
      [&](const Taken& taken) { return 4.0 * double(count) / taken.seconds; });
}

void Session::banks() {
  const int threads = gpu_ ? 512 : 64, rounds = gpu_ ? 64 : 1;
  const double loads = double(threads / 32) * rounds * kBankLoads;
  progress_("banks");
  apart(
      true, "clocks",
      [&](const std::string& name, int stride) {
        return compute(name, 1, threads, double(kBankLoads) * rounds, 0, load_banked, stride, rounds);
      },
      [](int stride) {
        return "of a warp's load from shared memory, lanes " + std::to_string(stride) + " words apart";
      },
      [&](const Taken& taken) { return taken.clocks / loads; });
}

void Session::additions() {
  const int blocks = info_.multiprocessors;
  progress_("additions in the L2");
  const auto rate = [&](const std::string& name, const std::string& what, Adds how, int tiles) {
    if (info_.compute_capability != 90) return unknown(name, what, "bytes_per_second", kNeedsHopper);
    const int rounds = gpu_ ? 1024 : 4;
    Buffer sums(Place::device, std::size_t(tiles) * kAddedFloats * sizeof(float));
    const Taken taken = time(
        1, [&](int64_t*) { launch_additions(how, blocks, pointer<float>(sums), tiles, rounds); },
        [&] { launch(fill, blocks, 1024, pointer<float>(sums), 0.0f, int64_t(tiles) * kAddedFloats); });
    expect(name, sums, double(blocks) * rounds / tiles);
    timed(name, what, "bytes_per_second",
          double(blocks) * rounds * kAddedFloats * sizeof(float) / taken.seconds, taken);
  };
  const int many = gpu_ ? 512 : 4;  // tiles: 16 MB, which the L2 holds
  rate("additions/floats", "L2, bytes added, a float an instruction", Adds::floats, many);
  rate("additions/fours", "L2, bytes added, four floats an instruction", Adds::fours, many);
  rate("additions/tiles", "L2, bytes added by TMA", Adds::tiles, many);
  rate("additions/fours_one_place", "four floats, all blocks to the same 32 KB", Adds::fours, 1);
  rate("additions/tiles_one_place", "TMA, all blocks to the same 32 KB", Adds::tiles, 1);
}

}  // namespace

std::vector<Measurement> measure(const std::function<void(const std::string&)>& progress) {
  Session session(progress);
  session.latencies();
  session.warps();
  session.rates();
  session.bandwidths();
  session.strides();
  session.banks();
  session.additions();
  return session.take();
}

}  // namespace flashbook::machine
