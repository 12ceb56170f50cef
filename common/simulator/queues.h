/// \file
/// Queues of work: CUDA's streams and events. The work of one queue is done in order; of several queues, each
/// at its own pace.
///
/// When something is done, options().async says: at once (eager); when somebody waits for it, and then no
/// more than is needed (lazy); or at any time between, by the seed (random). A kernel runs as a whole, and a
/// copy in two steps: it begins, and its target holds NaN; it lands, and only then reads its source. Between
/// the two other queues may work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace flashbook::sim {

class Queue;

/// A place in a queue: what was in it before.
struct Mark {
  Queue* queue = nullptr;  ///< null: nothing
  uint64_t position = 0;
};

/// A queue of the current device (memory.h).
Queue* make_queue();
/// Waits for its work. What went wrong, the next call says that waits.
void free_queue(Queue* queue) noexcept;
/// Whether this is a queue.
bool is_queue(const void* queue);
/// The device that it belongs to.
int device_of(const Queue& queue);

void enqueue(Queue& queue, std::function<void()> work);
/// What a copy moves: rows, which begin a pitch apart, counted in bytes.
struct Rows {
  std::size_t row_bytes, rows, target_pitch, source_pitch;

  /// From the beginning of the first to the end of the last.
  std::size_t bytes(std::size_t pitch) const { return rows == 0 ? 0 : (rows - 1) * pitch + row_bytes; }
};

/// Copies them now.
void copy_rows(void* target, const void* source, const Rows& rows);
/// Copies device memory, from any device to any. Throws Error if it is not all allocated.
void enqueue_copy(Queue& queue, void* target, const void* source, const Rows& rows);
/// All that is in the queue now.
Mark mark(const Queue& queue);
/// What comes into the queue from now on waits for what the mark names.
void enqueue_wait(Queue& queue, const Mark& mark);

// These throw what work throws, of whatever queue; all other work is given up then.

void finish(const Mark& mark);
void finish_all();
/// The same; what is thrown, the next call says that waits.
void finish_all_quietly() noexcept;

}  // namespace flashbook::sim
