/// \file
/// The machine that runs kernels, from the host's point of view: memory, time and properties. It is backed by
/// CUDA or by the simulator; a build contains one of the two.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>

#include "common/concat.h"

struct CUstream_st;  // CUDA's own name for the type behind cudaStream_t

namespace flashbook::device {

/// The machine behind this build.
enum class Machine { gpu, simulator };

/// A CUDA stream (the same type as cudaStream_t). Null is the default stream, on which the simulator runs
/// every launch immediately. queue.h creates other streams.
using Stream = CUstream_st*;

/// There is no GPU, or not the required one. Exit code 77.
struct HardwareMissing : ErrorOfParts<std::runtime_error> {
  using ErrorOfParts::ErrorOfParts;
};

/// A CUDA call failed, or a simulated kernel broke a rule of the machine. The message names the place.
struct DeviceError : ErrorOfParts<std::runtime_error> {
  using ErrorOfParts::ErrorOfParts;
};

/// The request cannot be fulfilled here: it needs more memory than there is, or a setting is out of range.
/// The message suggests a remedy.
struct UsageError : DeviceError {
  using DeviceError::DeviceError;
};

/// The properties of the machine.
struct Info {
  Machine machine;
  std::string name;        ///< "NVIDIA H200" or "simulator"
  int compute_capability;  ///< 90 for an H200 and for the simulator
  int multiprocessors;     ///< number of SMs; 4 in the simulator
  int64_t memory_free;     ///< number of bytes that can be allocated now
  int64_t l2_bytes;        ///< size of the L2 cache; 0 in the simulator
  std::string driver;      ///< "13.0", the latest CUDA version for this driver; empty in the simulator
  std::string runtime;     ///< "13.0", the CUDA runtime of this build; empty in the simulator
};

/// Returns the kind of machine that this build uses, without accessing it.
Machine machine();

/// Describes the machine. Throws HardwareMissing if this is a GPU build and no GPU can be used.
Info info();

/// Memory of the host, or of the device (the simulator's device memory is a separate address range).
enum class Place { host, device };

/// Returns the maximum shared memory of a block in bytes: 227 KB on an H200 and in the simulator, 163 KB on
/// an A100. A GPU build without a GPU assumes an H200; a launch reports what is missing.
int64_t shared_bytes_of_block();

/// The limit by which chapters choose tiles: shared_bytes_of_block, unless tests substitute the limit of
/// another machine.
extern int64_t (*granted_shared_bytes)();

/// Returns the number of multiprocessors of the calling thread's device; 4 in the simulator. Throws
/// HardwareMissing if this is a GPU build and no GPU can be used.
int multiprocessors();

/// A block of memory, freed by its destructor. New memory is poisoned: every byte is 0xff, which is NaN in
/// every type.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates `bytes` bytes (0 gives a null pointer). Throws UsageError if there is not enough memory.
  Buffer(Place place, std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// Copies from the host; `source` has the buffer's size.
  void upload(std::span<const std::byte> source);
  /// Copies from the host to the bytes starting at `offset`. Throws DeviceError if they exceed the buffer.
  void upload(std::span<const std::byte> source, std::size_t offset);
  /// Copies to the host; `target` has the buffer's size. Waits for all earlier work.
  void download(std::span<std::byte> target) const;
  /// Fills the buffer with 0xff.
  void poison();

 private:
  Place place_ = Place::host;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Waits until the device has finished all its work. Throws DeviceError if any of it failed.
void synchronize();

/// Returns the seconds that `work`, launched on `stream`, takes on the device: measured between two CUDA
/// events, or by the host's clock in the simulator.
double time_on_device(Stream stream, const std::function<void()>& work);

/// Overwrites a buffer larger than the L2 cache, so that the next launch finds none of its data there. Each
/// device has its own buffer. Does nothing in the simulator.
void flush_l2(Stream stream);

/// Reports actions of launches in the simulator since the last call that are allowed but rarely intended, in
/// lines that may explain a wrong result. Empty if there is nothing to report, and on a GPU.
std::string take_suspects();

/// Declares that kernels may also load bytes of this device memory that were never written, if they discard
/// them. The simulator's traced mode then does not check them; on a GPU this does nothing.
void allow_unwritten(const void* address, std::size_t bytes);

}  // namespace flashbook::device
