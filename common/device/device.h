/// \file
/// Where kernels run, seen from the host: memory, time, and what machine it is. CUDA or the simulator stands
/// behind it; a build holds one of the two.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include "common/concat.h"

struct CUstream_st;  // CUDA's own name for what cudaStream_t points to

namespace flashbook::device {

/// The machine behind this build.
enum class Machine { gpu, simulator };

/// A CUDA stream (the same type as cudaStream_t); null is the default stream, on which the simulator runs
/// every launch at once. queue.h makes others.
using Stream = CUstream_st*;

/// There is no GPU, or not the one that is needed. Exit code 77.
struct HardwareMissing : ErrorOfParts<std::runtime_error> {
  using ErrorOfParts::ErrorOfParts;
};

/// A CUDA call failed, or a simulated kernel broke a rule of the machine. The message says where.
struct DeviceError : ErrorOfParts<std::runtime_error> {
  using ErrorOfParts::ErrorOfParts;
};

/// The request cannot be met here: more memory than there is, a setting out of its range. The message names
/// the cure.
struct UsageError : DeviceError {
  using DeviceError::DeviceError;
};

/// What is known about the machine.
struct Info {
  Machine machine;
  std::string name;        ///< "NVIDIA H200", or "simulator"
  int compute_capability;  ///< 90 for an H200; the simulator says 90
  int multiprocessors;     ///< SMs; the simulator says 4
  int64_t memory_free;     ///< bytes that can be allocated now
  int64_t l2_bytes;        ///< size of the L2 cache; 0 in the simulator
  std::string driver;      ///< "13.0", the highest CUDA the driver knows; empty in the simulator
  std::string runtime;     ///< "13.0", the CUDA runtime built in; empty in the simulator
};

/// The machine of this build, without touching it.
Machine machine();

/// Describes the machine. Throws HardwareMissing if this is a GPU build and no GPU can be used.
Info info();

/// Which memory: the host's, or that of the device (the simulator's device memory is its own arena).
enum class Place { host, device };

/// The most shared memory that a block may ask for, in bytes: 227 KB on an H200 and in the simulator, 163 KB
/// on an A100. A GPU build without a GPU assumes an H200; a launch reports what is missing.
int64_t shared_bytes_of_block();

/// What chapters choose tiles by: shared_bytes_of_block, in whose place tests put another machine's.
extern int64_t (*granted_shared_bytes)();

/// How many multiprocessors the calling thread's device has; 4 in the simulator. Throws HardwareMissing if
/// this is a GPU build and no GPU can be used.
int multiprocessors();

/// A block of memory, freed with its owner. Fresh memory is poisoned: every byte 0xff, NaN in every type.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates `bytes` (0 gives a null pointer). Throws UsageError if there is not enough.
  Buffer(Place place, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Copies from the host; `source` has the buffer's size.
  void upload(std::span<const std::byte> source);
  /// Copies from the host to the bytes from `offset` on. Throws DeviceError if they are not all the buffer's.
  void upload(std::span<const std::byte> source, std::size_t offset);
  /// Copies to the host; `target` has the buffer's size. Waits for all work before it.
  void download(std::span<std::byte> target) const;
  /// Fills the buffer with 0xff.
  void poison();

 private:
  Place place_ = Place::host;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Waits until all work given to the device is done; throws DeviceError if some of it failed.
void synchronize();

/// Seconds that `work`, launched on `stream`, takes on the device: between two CUDA events, or by the host's
/// clock in the simulator.
double time_on_device(Stream stream, const std::function<void()>& work);

/// Overwrites a buffer larger than the L2 cache, so that the next launch finds none of its data there. Each
/// device has its buffer. Nothing in the simulator.
void flush_l2(Stream stream);

/// Whatever launches in the simulator did since the last call that is allowed and rarely intended, in lines
/// that may help to explain a wrong result. Empty if nothing was odd, and on a GPU.
std::string take_suspects();

/// Declares that kernels also load bytes of this device memory that were never written, and drop them. The
/// simulator's traced mode then does not check them; on a GPU nothing happens.
void allow_unwritten(const void* address, std::size_t bytes);

}  // namespace flashbook::device
