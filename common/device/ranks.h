/// \file
/// Ranks: programs that run side by side, each on a device of its own, and send each other memory. Their
/// memory, queues and launches are as everywhere (device.h, queue.h); what they have in common is this.
///
///     device::run_ranks(4, [&](device::Rank& rank) {
///       const int next = (rank.number() + 1) % rank.count(), previous = (rank.number() + 3) % rank.count();
///       device::Queue copies;
///       rank.exchange(copies, {{next, mine, bytes}}, {{previous, theirs, bytes}});
///       ...
///     });
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/device/queue.h"

namespace flashbook::device {

/// Device memory that goes to a rank, or where memory of that rank lands.
struct Message {
  int rank;
  void* data;
  std::size_t bytes;
};

/// One of several programs that run side by side. NCCL's word for its place in a communicator.
class Rank {
 public:
  virtual ~Rank() = default;
  virtual int number() const = 0;
  virtual int count() const = 0;

  /// Sends and receives, all of them side by side: what NCCL calls a group. To all ranks, oneself included,
  /// it is an all-to-all; of the same memory, an all-gather. It begins when the work in the queue is done,
  /// and what comes into the queue later waits until every message has landed and may be overwritten. A
  /// rank's messages to another are taken in the order in which they were sent. A send whose receive comes in
  /// a later exchange of the other rank waits for it, so two ranks that send first and receive later wait for
  /// each other. With Transport::copies it returns when all messages have found their other end, and throws
  /// DeviceError if all ranks wait, if the sizes of the two ends differ, or if another rank has failed. By
  /// sockets it returns when all messages have landed. NCCL returns at once and knows nothing of this: it
  /// waits for ever.
  virtual void exchange(Queue& queue, const std::vector<Message>& sends,
                        const std::vector<Message>& receives) = 0;

 protected:
  Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
};

/// The device of a rank: 0, 1, ... and, if there are more ranks than devices, 0 again. For a process that is
/// a rank (processes.h), its own: that of its place on its host.
int device_of_rank(int rank);

/// The ranks that this process runs: all of them, or its own.
std::vector<int> ranks_here(int count);

/// How messages travel.
enum class Transport {
  copies,  ///< by copy_async, which takes no multiprocessor; all ranks in one process
  nccl,    ///< by NCCL's kernels, which need some multiprocessors free; a device for each rank
  sockets  ///< by TCP, through the hosts' memory, between processes: slow, and it needs nothing else
};

/// How the ranks of a program work together.
struct Together {
  Transport transport = Transport::copies;
  int margin =
      0;  ///< multiprocessors that a rank's kernels leave to others, such as NCCL's, while messages travel
};

/// Why messages of this many ranks cannot travel this way here; empty if they can.
std::string why_not(Transport transport, int ranks);

/// Copies in one process. Between processes NCCL, or sockets where it is not to be had.
Transport default_transport(int ranks);

/// Whether the host threads of ranks run one at a time, from one exchange to the next. So the simulator does
/// the same in every run. On a GPU a rank that waits for its device must not keep others from theirs.
enum class Turns { one_at_a_time, free };
Turns default_turns();

/// Runs `body` once for each rank of this process, on its device, with a thread for each. Throws what the
/// first rank throws that fails; the others then end at their next exchange, or with NCCL as soon as they
/// wait. Throws UsageError if why_not says something.
void run_ranks(int count, const std::function<void(Rank&)>& body, Transport transport = Transport::copies,
               Turns turns = default_turns());

}  // namespace flashbook::device
