/// \file
/// Implements device.h with the simulator: device memory is part of host memory, and a launch has finished
/// when it returns.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "common/device/backend.h"
#include "common/device/device.h"
#include "common/device/host_memory.h"
#include "common/device/launch.h"
#include "common/device/queue.h"
#include "common/device/resources.h"
#include "common/simulator/launch.h"
#include "common/simulator/memory.h"
#include "common/simulator/queues.h"

namespace flashbook::device {
namespace {

/// Returns the result of `work`, with the simulator's errors converted to those of this interface.
template <typename Work>
auto translated(const Work& work) {
  try {
    return work();
  } catch (const sim::SettingError& error) {
    throw UsageError(error.what());
  } catch (const sim::Error& error) {
    throw DeviceError(error.what());
  }
}

constexpr int kDevices = 8;

sim::Queue& queue_of(Stream stream) {
  if (!sim::is_queue(stream))
    throw DeviceError(
        "the simulator has no such stream: use the default one, null, or that of a device::Queue");
  return *reinterpret_cast<sim::Queue*>(stream);
}

}  // namespace

Machine machine() { return Machine::simulator; }

Info info() {
  return {.machine = Machine::simulator,
          .name = "simulator",
          .compute_capability = 90,
          .multiprocessors = multiprocessors(),
          .memory_free = std::min(host_memory_available(), int64_t(translated(sim::largest_global_gap))),
          .l2_bytes = 0,
          .driver = "",
          .runtime = ""};
}

/// Returns a number greater than 1, so that blocks compete for the tiles of persistent kernels; it is a
/// multiple of a small machine's two OS threads, so that neither idles while the other runs the last block.
int multiprocessors() { return 4; }

int64_t shared_bytes_of_block() { return int64_t(sim::kMaxSharedBytes); }

void synchronize() { translated(sim::finish_all); }

double time_on_device(Stream, const std::function<void()>& work) {
  synchronize();
  const auto begin = std::chrono::steady_clock::now();
  work();
  synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void flush_l2(Stream) {}

std::string take_suspects() { return sim::take_suspects(); }

void allow_unwritten(const void* address, std::size_t bytes) { sim::note_written(address, bytes); }

std::vector<KernelResources> resources_of_kernels(const std::function<void()>& work) {
  work();
  return {};
}

int device_count() { return kDevices; }

void use_device(int device) {
  if (device < 0 || device >= kDevices)
    throw UsageError("there is no device ", device, ": the simulator has 0 to ", kDevices - 1);
  sim::set_current_device(device);
}

int current() { return sim::current_device(); }

void connect(int, int) {}

struct Event::Recorded {
  sim::Mark mark;
};

Queue::Queue() : stream_(reinterpret_cast<Stream>(sim::make_queue())) {}
Queue::~Queue() { sim::free_queue(&queue_of(stream_)); }

Event Queue::record() {
  Event event;
  event.recorded_ = std::make_shared<Event::Recorded>(Event::Recorded{sim::mark(queue_of(stream_))});
  return event;
}

void Queue::wait_for(const Event& event) {
  if (event.recorded_) translated([&] { sim::enqueue_wait(queue_of(stream_), event.recorded_->mark); });
}

void Queue::synchronize() {
  translated([&] { sim::finish(sim::mark(queue_of(stream_))); });
}

void copy_async(Stream stream, void* target, const void* source, std::size_t bytes) {
  copy_rows_async(stream, target, bytes, source, bytes, bytes, 1);
}

void copy_rows_async(Stream stream, void* target, std::size_t target_pitch, const void* source,
                     std::size_t source_pitch, std::size_t row_bytes, std::size_t rows) {
  if (target_pitch < row_bytes || source_pitch < row_bytes)
    throw DeviceError("a copy of rows of ", row_bytes, " bytes, which begin ",
                      std::min(target_pitch, source_pitch), " apart");
  const bool is_one = target_pitch == row_bytes && source_pitch == row_bytes;
  const sim::Rows moved = {is_one ? rows * row_bytes : row_bytes, is_one ? 1 : rows, target_pitch,
                           source_pitch};
  translated([&] {
    if (stream) return sim::enqueue_copy(queue_of(stream), target, source, moved);
    sim::finish_all();
    sim::copy_rows(target, source, moved);
  });
}

void detail::check_launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                          const std::function<void()>& check) {
  try {
    check();
  } catch (const sim::SettingError& error) {
    throw UsageError(error.what());
  } catch (const sim::Error& error) {
    throw DeviceError(describe_launch(grid, block, dynamic_shared_bytes), error.what());
  }
}

void detail::run_on(Stream stream, Work work) {
  const auto run = [work = std::move(work)] {
    check_launch(work.grid, work.block, work.dynamic_shared_bytes, [&] {
      sim::run_grid(work.grid, work.block, work.dynamic_shared_bytes, work.thread_body, work.kernel,
                    work.watcher, work.is_dependent);
    });
  };
  if (!stream) return run();
  sim::Queue& queue = queue_of(stream);
  if (const int device = sim::device_of(queue); device != sim::current_device())
    throw DeviceError("a launch on device ", sim::current_device(), " names a queue of device ", device,
                      ": call use_device first");
  sim::enqueue(queue, run);
}

namespace backend {

void* allocate(std::size_t bytes) {
  if (int64_t(bytes) > host_memory_available())
    throw UsageError("not enough memory for the simulator: ", bytes, " bytes needed, ",
                     host_memory_available(), " available on this host. Use a smaller shape");
  return translated([&] { return sim::allocate_global(bytes); });
}

void free(void* address) noexcept {
  sim::finish_all_quietly();
  sim::free_global(address);
}

void copy(void* target, const void* source, std::size_t bytes) {
  synchronize();
  std::memcpy(target, source, bytes);
  sim::note_written(target, bytes);
}

std::string why_not_nccl(int) {
  return "NCCL needs GPUs: in the simulator messages are copies between its devices";
}

std::string nccl_version() { return ""; }

void run_nccl_ranks(int ranks, const std::function<void(Rank&)>&) { throw UsageError(why_not_nccl(ranks)); }

void poison(void* address, unsigned char byte, std::size_t bytes) {
  synchronize();
  std::memset(address, byte, bytes);
  sim::note_unwritten(address);
}

}  // namespace backend
}  // namespace flashbook::device
