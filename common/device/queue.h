/// \file
/// Queues, events and copies between devices: work that overlaps. CUDA's streams and events, or the
/// simulator's (common/simulator/queues.h), which runs what is in several queues late, early or in any order.
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

/// How many devices there are: kernels, buffers and queues belong to one of them. Eight in the simulator.
/// Throws HardwareMissing if this is a GPU build and no GPU can be used.
int device_count();

/// The device of the buffers and queues that the calling thread makes from now on, and of its launches.
/// Throws UsageError if there is none of that number.
void use_device(int device);

/// The calling thread's device; -1 if no GPU can be used.
int current();

/// Lets copies between two devices go straight from one to the other, if the machine has a way for them; else
/// they go through the host's memory.
void connect(int device, int other);

/// A place in a queue: the work before it. Empty, it names no work.
class Event {
 public:
  Event() = default;

 private:
  friend class Queue;
  struct Recorded;
  std::shared_ptr<const Recorded> recorded_;
};

/// A stream of the device in use. The work in one queue is done in order; queues do not wait for each other,
/// nor for the default stream, unless asked to.
class Queue {
 public:
  Queue();
  /// Waits for the work in it.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// What launch() takes. The device in use must be the queue's.
  Stream stream() const { return stream_; }
  /// The work in the queue so far.
  Event record();
  /// What comes into this queue from now on waits for the event, of any queue and device.
  void wait_for(const Event& event);
  /// Returns when the work is done. Throws DeviceError if some of it, of whatever queue, has failed.
  void synchronize();

 private:
  Stream stream_ = nullptr;
};

/// Copies device memory, of any two devices, when the work before it on the stream is done. Until then, and
/// until the copy is waited for, `source` must not be written, nor `target` touched.
void copy_async(Stream stream, void* target, const void* source, std::size_t bytes);

/// The same for `rows` rows of `row_bytes`, which begin `target_pitch` and `source_pitch` bytes apart: at
/// least `row_bytes`.
void copy_rows_async(Stream stream, void* target, std::size_t target_pitch, const void* source,
                     std::size_t source_pitch, std::size_t row_bytes, std::size_t rows);

}  // namespace flashbook::device
