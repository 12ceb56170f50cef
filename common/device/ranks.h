/// \file
/// Ranks: programs that run concurrently, each on its own device, and send each other memory. They use the
/// usual memory, queues and launches (device.h, queue.h); this file adds communication.
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

/// Device memory that is sent to a rank, or that receives data from it.
struct Message {
  int rank;
  void* data;
  std::size_t bytes;
};

/// How messages travel.
enum class Transport {
  copies,  ///< copy_async, which uses no multiprocessor
  nccl     ///< NCCL's kernels, which occupy some multiprocessors; one device per rank
};

/// One of several concurrent programs: its number is the rank that NCCL assigns in a communicator.
class Rank {
 public:
  virtual ~Rank() = default;
  virtual int number() const = 0;
  virtual int count() const = 0;
  virtual Transport transport() const = 0;

  /// Sends and receives all messages concurrently, as an NCCL group does. Sent to every rank, including the
  /// sender, these messages form an all-to-all; if they all have the same source, an all-gather. The exchange
  /// begins when the earlier work in the queue has finished, and later work in the queue waits until every
  /// message has landed and its source may be overwritten. Messages from one rank to another are received in
  /// the order in which they were sent. A send waits if the other rank receives it in a later exchange, so
  /// two ranks that send first and receive later wait for each other. With Transport::copies, this function
  /// returns when all messages have been matched, and throws DeviceError if all ranks wait, if the sizes at
  /// the two ends differ, or if another rank has failed. NCCL returns immediately and detects none of these
  /// errors: it waits forever.
  virtual void exchange(Queue& queue, const std::vector<Message>& sends,
                        const std::vector<Message>& receives) = 0;

 protected:
  Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
};

/// Returns the device of a rank: 0, 1, ... and, if there are more ranks than devices, 0 again.
int device_of_rank(int rank);

/// How the ranks of a program communicate.
struct Together {
  Transport transport = Transport::copies;
  int margin = 0;  ///< number of multiprocessors that kernels leave free while messages travel
};

/// Returns why this transport cannot serve this many ranks here; empty if it can.
std::string why_not(Transport transport, int ranks);

/// Whether the host threads of ranks run one at a time, from one exchange to the next. If so, every run in
/// the simulator is the same. On a GPU, a rank that waits for its device must not block the others.
enum class Turns { one_at_a_time, free };
Turns default_turns();

/// Runs `body` once for each rank, on its device and in its own thread. Throws the exception
/// of the first rank that fails; the others then end at their next exchange or, with NCCL, as soon as they
/// wait. Throws UsageError if why_not returns a reason.
void run_ranks(int count, const std::function<void(Rank&)>& body, Transport transport = Transport::copies,
               Turns turns = default_turns());

}  // namespace flashbook::device
