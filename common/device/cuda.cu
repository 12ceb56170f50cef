/// \file
/// Implements device.h, queue.h and resources.h with the CUDA runtime.
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "common/device/backend.h"
#include "common/device/device.h"
#include "common/device/queue.h"
#include "common/device/resources.h"

namespace flashbook::device {

int current() {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) return device;
  cudaGetLastError();
  return -1;
}

namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next launch does not report it
  throw DeviceError(call, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
}

/// Returns "13.0" for CUDA's 13000, as returned by one of its two version functions; "none" for 0, which they
/// return if there is no driver.
std::string version(cudaError_t (*ask)(int*), const char* name) {
  int version = 0;
  check(ask(&version), name);
  return version == 0 ? "none" : concat(version / 1000, ".", version % 1000 / 10);
}
std::string driver_version() { return version(cudaDriverGetVersion, "cudaDriverGetVersion"); }
std::string runtime_version() { return version(cudaRuntimeGetVersion, "cudaRuntimeGetVersion"); }

/// Returns the device on which kernels are launched. Throws HardwareMissing if there is none.
int current_device() {
  if (const int device = current(); device >= 0) return device;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw HardwareMissing(
        "no usable CUDA GPU: ", error == cudaSuccess ? "no device" : cudaGetErrorString(error), "; driver ",
        driver_version(), ", runtime ", runtime_version(),
        ". The simulator needs none: see docs/pages/simulator.md");
  }
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

int64_t memory_free() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return int64_t(free);
}

int64_t l2_bytes(int device) { return attribute(cudaDevAttrL2CacheSize, device); }

class Clock {
 public:
  Clock() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Clock() { cudaEventDestroy(event_); }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  void record(Stream stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void wait() { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  double seconds_since(const Clock& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return double(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Launch {
  const void* kernel;
  int threads;
  std::size_t dynamic_shared_bytes;
  friend bool operator==(const Launch&, const Launch&) = default;
};

/// The list in which this thread's launches are recorded; null when they are not recorded.
thread_local std::vector<Launch>* noted = nullptr;

KernelResources resources_of(const Launch& launch) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, launch.kernel), "cudaFuncGetAttributes");
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel, launch.threads,
                                                      launch.dynamic_shared_bytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return {attributes.numRegs,
          attributes.sharedSizeBytes + launch.dynamic_shared_bytes,
          attributes.localSizeBytes,
          launch.threads,
          blocks,
          attribute(cudaDevAttrMaxThreadsPerMultiProcessor, current_device())};
}

}  // namespace

Machine machine() { return Machine::gpu; }

Info info() {
  const int device = current_device();
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {.machine = Machine::gpu,
          .name = properties.name,
          .compute_capability = properties.major * 10 + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory_free = memory_free(),
          .l2_bytes = l2_bytes(device),
          .driver = driver_version(),
          .runtime = runtime_version()};
}

int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount, current_device()); }

int64_t shared_bytes_of_block() {
  constexpr int64_t kH200Bytes = 227 * 1024;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    cudaGetLastError();
    return kH200Bytes;
  }
  return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device());
}

void synchronize() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

double time_on_device(Stream stream, const std::function<void()>& work) {
  Clock begin, end;
  begin.record(stream);
  work();
  end.record(stream);
  end.wait();
  return end.seconds_since(begin);
}

std::string take_suspects() { return ""; }

void allow_unwritten(const void*, std::size_t) {}

void flush_l2(Stream stream) {
  // Allocated once per device and kept, since an allocation between two timed launches would disturb
  // them.
  static std::mutex mutex;
  static std::map<int, Buffer> buffers;
  const int device = current_device();
  const std::lock_guard lock(mutex);
  Buffer& buffer = buffers[device];
  // twice the cache's size, since the L2's eviction order is unknown
  if (buffer.bytes() == 0) buffer = Buffer(Place::device, 2 * std::size_t(l2_bytes(device)));
  check(cudaMemsetAsync(buffer.data(), 0, buffer.bytes(), stream), "cudaMemsetAsync");
}

int device_count() {
  current_device();  // reports what is missing
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

void use_device(int device) {
  if (const int count = device_count(); device < 0 || device >= count)
    throw UsageError("there is no device ", device, ": this machine has 0 to ", count - 1);
  check(cudaSetDevice(device), "cudaSetDevice");
}

void connect(int device, int other) {
  int possible = 0, before = 0;
  if (device != other) check(cudaDeviceCanAccessPeer(&possible, device, other), "cudaDeviceCanAccessPeer");
  if (!possible) return;
  check(cudaGetDevice(&before), "cudaGetDevice");
  check(cudaSetDevice(device), "cudaSetDevice");
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();
  else
    check(error, "cudaDeviceEnablePeerAccess");
  check(cudaSetDevice(before), "cudaSetDevice");
}

struct Event::Recorded {
  explicit Recorded(Stream stream) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }
  ~Recorded() { cudaEventDestroy(event); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  cudaEvent_t event = nullptr;
};

Queue::Queue() {
  current_device();  // reports what is missing
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Queue::~Queue() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

Event Queue::record() {
  Event event;
  event.recorded_ = std::make_shared<Event::Recorded>(stream_);
  return event;
}

void Queue::wait_for(const Event& event) {
  if (event.recorded_) check(cudaStreamWaitEvent(stream_, event.recorded_->event), "cudaStreamWaitEvent");
}

void Queue::synchronize() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

void copy_async(Stream stream, void* target, const void* source, std::size_t bytes) {
  check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

void copy_rows_async(Stream stream, void* target, std::size_t target_pitch, const void* source,
                     std::size_t source_pitch, std::size_t row_bytes, std::size_t rows) {
  if (target_pitch == row_bytes && source_pitch == row_bytes)
    return copy_async(stream, target, source, row_bytes * rows);
  check(cudaMemcpy2DAsync(target, target_pitch, source, source_pitch, row_bytes, rows, cudaMemcpyDefault,
                          stream),
        "cudaMemcpy2DAsync");
}

std::vector<KernelResources> resources_of_kernels(const std::function<void()>& work) {
  std::vector<Launch> launches;
  noted = &launches;
  try {
    work();
  } catch (...) {
    noted = nullptr;
    throw;
  }
  noted = nullptr;
  std::vector<KernelResources> resources;
  for (const Launch& launch : launches) resources.push_back(resources_of(launch));
  return resources;
}

cudaError_t allow_shared_bytes(const void* kernel, std::size_t bytes) {
  thread_local std::map<std::pair<int, const void*>, std::size_t> allowed;
  std::size_t& known = allowed[{current(), kernel}];
  if (bytes <= known) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error == cudaSuccess) known = bytes;
  return error;
}

void note_launch(const void* kernel, int threads, std::size_t dynamic_shared_bytes) {
  const Launch launch{kernel, threads, dynamic_shared_bytes};
  if (noted && std::ranges::find(*noted, launch) == noted->end()) noted->push_back(launch);
}

namespace backend {

void* allocate(std::size_t bytes) {
  current_device();  // without a GPU, reports that instead of missing memory
  void* address = nullptr;
  const cudaError_t error = cudaMalloc(&address, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw UsageError("not enough GPU memory: ", bytes, " bytes needed, ", memory_free(),
                     " available. Use a smaller shape");
  }
  check(error, "cudaMalloc");
  return address;
}

void free(void* address) noexcept { cudaFree(address); }

void copy(void* target, const void* source, std::size_t bytes) {
  // The default stream waits for another stream only if that stream was created blocking. A copy must wait
  // for all streams, and they must wait for it: cudaMemcpy returns once the host's bytes are staged, before
  // they are in the buffer.
  synchronize();
  check(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), "cudaMemcpy");
  synchronize();
}

void poison(void* address, unsigned char byte, std::size_t bytes) {
  check(cudaMemset(address, byte, bytes), "cudaMemset");
  synchronize();  // the memset may still be running, and other streams do not wait for it
}

}  // namespace backend
}  // namespace flashbook::device
