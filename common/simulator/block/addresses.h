/// \file
/// A block's shared memory, and checks of the addresses that instructions use. Internal to the simulator.
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

  /// Sets how much dynamic shared memory the following blocks have. Call it on the OS thread that runs them.
  void enter_grid(std::size_t dynamic_bytes);
  /// Fills shared memory with NaN in every type, since a kernel must not rely on its initial contents.
  void begin_block();

  /// Saves the contents of the `__shared__` arrays before another block on the same OS thread uses the
  /// arrays,
  void put_aside();
  /// and restores them afterwards.
  void bring_back();

  std::span<unsigned char> dynamic() const { return {data_.get(), bytes_}; }
  const std::vector<std::span<unsigned char>>& static_arrays() const { return arrays_; }

  bool contains(const void* address, std::size_t bytes) const;
  /// Returns a description such as "dynamic shared memory + 64 of 1024 bytes", for any address.
  std::string describe(const void* address) const;
  /// Returns "another block's shared memory" if the address is in the shared memory of blocks on another OS
  /// thread; otherwise an empty string.
  static std::string describe_of_others(const void* address);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> data_;
  std::size_t bytes_ = 0;
  std::vector<std::span<unsigned char>> arrays_;
  std::vector<unsigned char> aside_;  ///< the saved contents of the arrays
};

/// Throws Error unless `address` is a multiple of `alignment` and all `bytes` bytes are in the calling
/// block's shared memory, either in the dynamic part or in one `__shared__` array. `what` is the
/// instruction's name in reports. On systems where `__shared__` arrays cannot be found (static_shared.h), any
/// address is accepted.
void require_shared(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where);

/// Throws Error unless `address` is a multiple of `alignment` and all `bytes` bytes are in one allocation of
/// device memory. Zero bytes are accepted at any address.
void require_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                    Location where);

/// Checks the address of an instruction that accepts both kinds of memory.
void require_shared_or_global(const char* what, const void* address, std::size_t bytes, std::size_t alignment,
                              Location where);

}  // namespace flashbook::sim
