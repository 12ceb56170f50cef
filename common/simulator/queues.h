/// \file
/// Queues of work: CUDA's streams and events. Work in one queue runs in order; different queues proceed
/// independently.
///
/// options().async determines when work runs: immediately (eager); when a host thread waits for it, and then
/// no more than necessary (lazy); or at a time in between that depends on the seed (random). A kernel runs as
/// a whole. A copy runs in two steps: when it begins, its target becomes NaN, and when it lands, it reads its
/// source. Other queues may run work in between.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace flashbook::sim {

class Queue;

/// A position in a queue, after all work enqueued so far.
struct Mark {
  Queue* queue = nullptr;  ///< null if there is no work
  uint64_t position = 0;
};

/// Returns a queue of the current device (memory.h).
Queue* make_queue();
/// Waits for the queue's work. The next call that waits reports any error.
void free_queue(Queue* queue) noexcept;
bool is_queue(const void* queue);
int device_of(const Queue& queue);

void enqueue(Queue& queue, std::function<void()> work);
/// The memory that a copy moves: rows with a pitch, in bytes.
struct Rows {
  std::size_t row_bytes, rows, target_pitch, source_pitch;

  /// Returns the range from the start of the first row to the end of the last one.
  std::size_t bytes(std::size_t pitch) const { return rows == 0 ? 0 : (rows - 1) * pitch + row_bytes; }
};

/// Copies the rows immediately.
void copy_rows(void* target, const void* source, const Rows& rows);
/// Copies device memory, within or between devices. Throws Error if not all of it is allocated.
void enqueue_copy(Queue& queue, void* target, const void* source, const Rows& rows);
/// Returns the position after all work that is in the queue now.
Mark mark(const Queue& queue);
/// Makes later work in the queue wait for the mark.
void enqueue_wait(Queue& queue, const Mark& mark);

// These functions throw any error from work in any queue; all other work is then dropped.

void finish(const Mark& mark);
void finish_all();
/// Finishes all work; the next call that waits throws any error.
void finish_all_quietly() noexcept;

}  // namespace flashbook::sim
