/// \file
/// A block's shared memory, and rules about the addresses that instructions take. Internal to the simulator.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/simulator/location.h"

namespace flashbook::sim {

/// The shared memory of the block that an OS thread runs.
class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The blocks that follow have so much dynamic shared memory. To be called on the OS thread that runs them.
  void enter_grid(std::size_t dynamic_bytes);
  /// Shared memory holds what the machine left there, which no kernel may use: NaN, whatever its type.
  void begin_block();

  /// Where several blocks have one OS thread: what is in the `__shared__` arrays is put aside, since they are
  /// other blocks' next,
  void put_aside();
  /// and brought back.
  void bring_back();

  std::span<unsigned char> dynamic() const { return {data_.get(), bytes_}; }
  /// The `__shared__` arrays.
  const std::vector<std::span<unsigned char>>& static_arrays() const { return arrays_; }

  bool contains(const void* address, std::size_t bytes) const;
  /// "dynamic shared memory + 64 of 1024 bytes", of any address.
  std::string describe(const void* address) const;
  /// "another block's shared memory", if the address lies in that of another OS thread's blocks; else empty.
  static std::string describe_of_others(const void* address);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> data_;
  std::size_t bytes_ = 0;
  std::vector<std::span<unsigned char>> arrays_;
  std::vector<unsigned char> aside_;  ///< what was in them
};

/// Throws Error unless `address` is a multiple of `alignment` and the `bytes` bytes there lie in the calling
/// block's shared memory: in the dynamic part or in one `__shared__` array. `what` is the instruction's name
/// in reports. Any address will do where `__shared__` arrays cannot be found (static_shared.h).
void require_shared(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where);

/// The same for device memory: the bytes must lie in one allocation. No bytes may lie anywhere.
void require_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where);

/// The same for instructions that take either.
void require_shared_or_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                              Location where);

}  // namespace flashbook::sim
