/// \file
/// Ranks as separate processes, on one host or on several, started by torchrun or mpirun.
///
/// They meet at an address and connect to each other by TCP, and each monitors the others until they part. If
/// a process ends early, or is silent for `patience` seconds, each of the others reports which one it was and
/// ends with exit code 1. A killed rank is noticed immediately; a rank that hangs, or whose host has failed,
/// is noticed after that time.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flashbook::device {

/// The launcher's description of this process.
struct Launched {
  int rank, count;
  int local;            ///< number of this process among those on its host
  std::string address;  ///< address of rank 0
  int port;
};

/// Returns the settings that torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) or mpirun
/// (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, and MASTER_ADDR and MASTER_PORT for several hosts) has put in
/// the environment; empty if this process is alone. torchrun's own server listens at its port, so we use the
/// next one. Throws UsageError if the environment is inconsistent.
std::optional<Launched> launched();

/// The processes that act as the ranks of one program, from the point of view of one of them.
class Processes {
 public:
  /// Host memory that is sent to a rank, or that receives data from it.
  struct Message {
    int rank;
    void* data;
    std::size_t bytes;
  };

  /// Meets the other processes. Throws DeviceError if they have not arrived within `patience` seconds.
  Processes(const Launched& launched, double patience);
  ~Processes();

  int rank() const;
  int count() const;
  int local() const;

  /// Sends and receives concurrently. Throws DeviceError if nothing moves for `patience` seconds.
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives);

  /// From now on, this process and the others may end without being reported as lost.
  void part();

 private:
  class Peers;
  std::unique_ptr<Peers> peers_;
};

/// Returns the processes that this one has met; null if this process is alone.
Processes* processes();

/// Meets the other processes if a launcher has started several. Throws the same exceptions as the constructor
/// of Processes.
void meet_processes(double patience);

/// Parts from the other processes.
void part_from_processes();

}  // namespace flashbook::device
