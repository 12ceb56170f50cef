/// \file
/// resources.h over the CUDA runtime.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "common/device/device.h"
#include "common/device/resources.h"

namespace flashbook::device {
namespace {

struct Launch {
  const void* kernel;
  int threads;
  std::size_t dynamic_shared_bytes;
  friend bool operator==(const Launch&, const Launch&) = default;
};

/// Where this thread's launches are noted; null while nobody asks.
thread_local std::vector<Launch>* noted = nullptr;

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw DeviceError(std::string(call) + ": " + cudaGetErrorString(error));
}

KernelResources resources_of(const Launch& launch) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, launch.kernel), "cudaFuncGetAttributes");
  int blocks = 0, device = 0, resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel, launch.threads,
                                                      launch.dynamic_shared_bytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&resident, cudaDevAttrMaxThreadsPerMultiProcessor, device),
        "cudaDeviceGetAttribute");
  return {attributes.numRegs,
          attributes.sharedSizeBytes + launch.dynamic_shared_bytes,
          attributes.localSizeBytes,
          launch.threads,
          blocks,
          resident};
}

}  // namespace

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

void note_launch(const void* kernel, int threads, std::size_t dynamic_shared_bytes) {
  const Launch launch{kernel, threads, dynamic_shared_bytes};
  if (noted && std::ranges::find(*noted, launch) == noted->end()) noted->push_back(launch);
}

}  // namespace flashbook::device
