/// \file
/// Ranks that are processes of their own, on one host or on several, started by torchrun or mpirun.
///
/// They meet at an address, each connects to each by TCP, and they know of each other until they part: if one
/// ends before, or is silent for `patience` seconds, each of the others reports which one and ends with exit
/// code 1. A rank that is killed is noticed at once, one that hangs or whose host is gone after that time.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flashbook::device {

/// What a launcher says of this process.
struct Launched {
  int rank, count;
  int local;            ///< its place among the processes of its host
  std::string address;  ///< where rank 0 is to be met
  int port;
};

/// What torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or mpirun (OMPI_COMM_WORLD_RANK,
/// _SIZE, _LOCAL_RANK, and MASTER_ADDR and MASTER_PORT if there are several hosts) has put into the
/// environment; nothing if this process is alone. torchrun's own server listens at its port, so the next one
/// is taken. Throws UsageError if it makes no sense.
std::optional<Launched> launched();

/// The processes that are the ranks of one program, from one of them.
class Processes {
 public:
  /// Host memory that goes to a rank, or where memory of that rank lands.
  struct Message {
    int rank;
    void* data;
    std::size_t bytes;
  };

  /// Meets the others. Throws DeviceError if they have not come within `patience` seconds.
  Processes(const Launched& launched, double patience);
  ~Processes();

  int rank() const;
  int count() const;
  int local() const;

  /// Sends and receives, side by side. Throws DeviceError if nothing moves for `patience` seconds.
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives);

  /// From now on this process may end, and so may the others: who does is no longer missed.
  void part();

 private:
  class Peers;
  std::unique_ptr<Peers> peers_;
};

/// Those of this process, once it has met them; null if it is alone.
Processes* processes();

/// Meets the other processes, if a launcher has started this one along with them. Throws what Processes
/// throws.
void meet_processes(double patience);

/// Parts from them.
void part_from_processes();

}  // namespace flashbook::device
