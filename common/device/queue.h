/// \file
/// Queues, events and copies between devices, for work that overlaps. Backed by CUDA's streams and events, or
/// by the simulator's (common/simulator/queues.h), which runs the work of several queues late, early or in
/// any order.
///
///     device::Queue compute, copies;
///     device::copy_async(copies.stream(), next_keys, keys_of_neighbour, bytes);
///     device::launch(attend, grid, block, shared_bytes, compute.stream(), keys, ...);  // overlaps the copy
///     compute.wait_for(copies.record());
///     device::launch(attend, grid, block, shared_bytes, compute.stream(), next_keys, ...);
#pragma once
#include <cstddef>
#include <memory>

#include "common/device/device.h"

namespace flashbook::device {

/// Returns the number of devices: eight in the simulator. Kernels, buffers and queues belong to one of them.
/// Throws HardwareMissing if this is a GPU build and no GPU can be used.
int device_count();

/// Sets the device for the buffers and queues that the calling thread creates from now on, and for its
/// launches. Throws UsageError if there is no such device.
void use_device(int device);

/// Returns the calling thread's device; -1 if no GPU can be used.
int current();

/// Lets copies between two devices bypass the host's memory, if the machine supports that; otherwise they go
/// through the host's memory.
void connect(int device, int other);

/// A position in a queue, after all work issued so far. A default-constructed event refers to no work.
class Event {
 public:
  Event() = default;

 private:
  friend class Queue;
  struct Recorded;
  std::shared_ptr<const Recorded> recorded_;
};

/// A stream of the current device. The work in one queue runs in order; queues do not wait for each other,
/// nor for the default stream, unless requested.
class Queue {
 public:
  Queue();
  /// Waits until the queue's work has finished.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Returns the stream to pass to launch(). The queue's device must be the current one.
  Stream stream() const { return stream_; }
  /// Returns an event for all work in the queue so far.
  Event record();
  /// Makes later work in this queue wait for the event, which may belong to any queue and device.
  void wait_for(const Event& event);
  /// Returns when the work has finished. Throws DeviceError if any work, in any queue, has failed.
  void synchronize();

 private:
  Stream stream_ = nullptr;
};

/// Copies memory between any two devices once the earlier work on the stream has finished. Until the copy has
/// been waited for, `source` must not be written and `target` must not be accessed.
void copy_async(Stream stream, void* target, const void* source, std::size_t bytes);

/// Copies `rows` rows of `row_bytes` bytes. They start `target_pitch` and `source_pitch` bytes apart; both
/// pitches are at least `row_bytes`.
void copy_rows_async(Stream stream, void* target, std::size_t target_pitch, const void* source,
                     std::size_t source_pitch, std::size_t row_bytes, std::size_t rows);

}  // namespace flashbook::device
