#include "common/device/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "common/device/device.h"

namespace flashbook::device {
namespace sockets {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

constexpr int kAnyPort = 0;
constexpr int kDefaultPort = 29400;  // default port of mpirun on one host
constexpr auto kHeartbeat = std::chrono::milliseconds(500);
constexpr uint64_t kMagic = 0x316b6f6f62687366;  // "fshbook1"
constexpr std::size_t kPiece = 1 << 20;          // bytes per call

std::string errno_text() { return std::generic_category().message(errno); }

Deadline in(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return int(std::clamp<int64_t>(left, 0, 1000));
}

/// A file descriptor, closed by its destructor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&bytes); }
  /// Returns the port in network byte order, as both address families store it.
  in_port_t& port() {
    return bytes.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bytes)->sin6_port
                                       : reinterpret_cast<sockaddr_in*>(&bytes)->sin_port;
  }
};

Address resolved(const std::string& name, int port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    throw UsageError("MASTER_ADDR is ", name, ", which cannot be resolved here (", ::gai_strerror(error),
                     "): give the host of rank 0");
  Address address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

Address own_address(const Socket& socket) {
  Address address;
  ::getsockname(socket.get(), address.get(), &address.size);
  return address;
}

/// Listens at this address. Throws DeviceError.
Socket listening(Address address) {
  Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), address.get(), address.size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0)
    throw UsageError("rank 0 cannot listen at port ", ntohs(address.port()), " of MASTER_ADDR (",
                     errno_text(),
                     "): give a free port of its host, by MASTER_PORT or torchrun's --master-port");
  return socket;
}

void prepare(const Socket& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// Waits until the socket is ready, but no longer than until the deadline.
bool is_ready(const Socket& socket, short events, Deadline deadline) {
  pollfd one = {socket.get(), events, 0};
  while (Clock::now() < deadline)
    if (::poll(&one, 1, milliseconds_until(deadline)) > 0) return true;
  return false;
}

/// Transfers all bytes. Returns false if the other end has closed or time is up.
bool receive_all(const Socket& socket, void* data, std::size_t bytes, Deadline deadline) {
  for (std::size_t done = 0; done < bytes;) {
    if (!is_ready(socket, POLLIN, deadline)) return false;
    const ssize_t now = ::recv(socket.get(), static_cast<char*>(data) + done, bytes - done, 0);
    if (now == 0 || (now < 0 && errno != EINTR && errno != EAGAIN)) return false;
    done += std::size_t(std::max<ssize_t>(now, 0));
  }
  return true;
}

/// Sends a message that is short enough to fit in the other end's buffer.
bool send_all(const Socket& socket, const void* data, std::size_t bytes) {
  return ::send(socket.get(), data, bytes, MSG_NOSIGNAL) == ssize_t(bytes);
}

Socket accepted(const Socket& listener, Deadline deadline) {
  if (!is_ready(listener, POLLIN, deadline)) return {};
  Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket) prepare(socket);
  return socket;
}

/// Connects, and retries until the deadline, since the other process may start later.
Socket connected(Address address, Deadline deadline) {
  do {
    Socket socket(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address.get(), address.size) == 0) {
      prepare(socket);
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < deadline);
  return {};
}

/// The first message that a process sends on every connection.
struct Hello {
  uint64_t magic = kMagic;
  int32_t rank, count;
  Address listens = {};  ///< address at which ranks with higher numbers reach it; set by rank 0
};

/// The messages sent while the ranks are working: one byte each, plus the lost rank after `lost`.
enum class Word : char { alive = 'a', parting = 'p', lost = 'l' };

/// Returns a number from the environment; empty if it is not set.
std::optional<int> number(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view all = text;
  int value = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (error != std::errc() || end != all.data() + all.size() || value < 0)
    throw UsageError(name, " is ", all, ": give a number, as launchers do, or unset it to run alone");
  return value;
}

std::string text_of(const char* name, const std::string& otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : text;
}

}  // namespace sockets

using namespace sockets;

std::optional<Launched> launched() {
  const bool torch = std::getenv("WORLD_SIZE") != nullptr,
             mpi = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  if (!torch && !mpi) return std::nullopt;
  const auto rank = number(torch ? "RANK" : "OMPI_COMM_WORLD_RANK"),
             count = number(torch ? "WORLD_SIZE" : "OMPI_COMM_WORLD_SIZE"),
             local = number(torch ? "LOCAL_RANK" : "OMPI_COMM_WORLD_LOCAL_RANK");
  if (!rank || !count || *rank >= *count)
    throw UsageError(
        "the environment gives the number of processes, but not this one's rank: start it with torchrun or "
        "mpirun, or unset WORLD_SIZE to run alone");
  if (*count == 1) return std::nullopt;
  Launched found{*rank, *count, local.value_or(*rank), text_of("MASTER_ADDR", ""), 0};
  const auto port = number("MASTER_PORT"), on_host = number("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (found.address.empty()) {
    if (!mpi || on_host != count)
      throw UsageError(
          "MASTER_ADDR is missing: set it to rank 0's host, and MASTER_PORT to a free port there");
    found.address = "127.0.0.1";
  }
  const bool is_taken = std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
  found.port = port.value_or(kDefaultPort) + is_taken;
  if (found.port > 65535) throw UsageError("MASTER_PORT is ", *port, ": give one below 65535");
  return found;
}

/// The connections to other processes, and a thread that monitors whether these are alive.
class Processes::Peers {
 public:
  Peers(const Launched& launched, double patience) : me_(launched), patience_(patience) {
    const Deadline deadline = in(patience);
    watched_.resize(std::size_t(me_.count));
    data_.resize(std::size_t(me_.count));
    heard_.assign(std::size_t(me_.count), Clock::now());
    me_.rank == 0 ? gather(deadline) : go_to_first(deadline);
    for (Socket& socket : data_)
      if (socket) ::fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    for (auto& heard : heard_) heard = Clock::now();
    watcher_ = std::thread([this] { watch(); });
  }

  ~Peers() { part(); }

  const Launched& me() const { return me_; }

  void part() {
    has_parted_ = true;
    if (watcher_.joinable()) watcher_.join();  // the other processes have been notified
  }

  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) {
    std::vector<Lane> lanes(data_.size());
    std::deque<Message> own;
    for (const Message& message : sends) {
      if (message.rank == me_.rank)
        own.push_back(message);
      else
        lanes[std::size_t(message.rank)].out.push_back({message.bytes, message});
    }
    for (const Message& message : receives) {
      if (message.rank != me_.rank) {
        lanes[std::size_t(message.rank)].in.push_back({0, message});
        continue;
      }
      if (own.empty() || own.front().bytes != message.bytes)
        throw DeviceError("rank ", me_.rank, " receives ", message.bytes,
                          " bytes from itself, but does not send them");
      std::memcpy(message.data, own.front().data, message.bytes);
      own.pop_front();
    }
    Deadline deadline = in(patience_);
    for (;;) {
      std::vector<pollfd> open;
      std::vector<int> ranks;
      for (int rank = 0; rank < me_.count; ++rank) {
        const Lane& lane = lanes[std::size_t(rank)];
        const short events = short((lane.in.empty() ? 0 : POLLIN) | (lane.out.empty() ? 0 : POLLOUT));
        if (events == 0) continue;
        open.push_back({data_[std::size_t(rank)].get(), events, 0});
        ranks.push_back(rank);
      }
      if (open.empty()) return;
      if (Clock::now() >= deadline)
        throw DeviceError("rank ", me_.rank, " has waited ", patience_, " s for rank ", ranks.front(),
                          ", which is running and ",
                          lanes[std::size_t(ranks.front())].in.empty() ? "receives" : "sends",
                          " nothing: give both ends the message, or wait longer with --timeout");
      if (::poll(open.data(), nfds_t(open.size()), milliseconds_until(deadline)) <= 0) continue;
      for (std::size_t i = 0; i < open.size(); ++i)
        if (open[i].revents != 0 && advance(ranks[i], lanes[std::size_t(ranks[i])])) deadline = in(patience_);
    }
  }

 private:
  /// A message in transit: its size in eight bytes, then its data.
  struct Moving {
    uint64_t size;
    Message message;
    std::size_t done = 0;  ///< number of bytes transferred, including the size
  };
  /// The messages to one rank, and those from that rank.
  struct Lane {
    std::deque<Moving> out, in;
  };

  /// Sends and receives as much as is possible now. Returns false if nothing moved.
  bool advance(int rank, Lane& lane) {
    const int socket = data_[std::size_t(rank)].get();
    bool has_moved = false;
    const auto gone = [&] {
      throw DeviceError("rank ", rank, " has ended, and rank ", me_.rank, " is waiting for it");
    };
    const auto place = [](Moving& m) -> std::span<char> {
      if (m.done < sizeof m.size) return {reinterpret_cast<char*>(&m.size) + m.done, sizeof m.size - m.done};
      const std::size_t at = m.done - sizeof m.size;
      return {static_cast<char*>(m.message.data) + at, std::min(m.message.bytes - at, kPiece)};
    };
    const auto is_over = [](const Moving& m) { return m.done == sizeof m.size + m.message.bytes; };
    while (!lane.out.empty()) {
      Moving& m = lane.out.front();
      const std::span<char> piece = place(m);
      const ssize_t now = ::send(socket, piece.data(), piece.size(), MSG_NOSIGNAL);
      if (now < 0 && errno != EAGAIN && errno != EINTR) gone();
      if (now <= 0) break;
      m.done += std::size_t(now);
      has_moved = true;
      if (is_over(m)) lane.out.pop_front();
    }
    while (!lane.in.empty()) {
      Moving& m = lane.in.front();
      const std::span<char> piece = place(m);
      const ssize_t now = ::recv(socket, piece.data(), piece.size(), 0);
      if (now == 0 || (now < 0 && errno != EAGAIN && errno != EINTR)) gone();
      if (now < 0) break;
      m.done += std::size_t(now);
      has_moved = true;
      if (m.done == sizeof m.size && m.size != m.message.bytes)
        throw DeviceError("rank ", rank, " sends ", m.size, " bytes to rank ", me_.rank, ", which receives ",
                          m.message.bytes, ": give both ends the same size");
      if (is_over(m)) lane.in.pop_front();
    }
    return has_moved;
  }

  // ---- how they meet

  /// Returns the greeting on a new connection if it comes from one of our processes.
  std::optional<Hello> hello(const Socket& socket, Deadline deadline) const {
    Hello said{.rank = -1, .count = 0};
    if (!socket || !receive_all(socket, &said, sizeof said, std::min(deadline, in(5))) ||
        said.magic != kMagic)
      return std::nullopt;
    if (said.count != me_.count)
      throw DeviceError("rank ", said.rank, " was started as one of ", said.count, " ranks, but rank ",
                        me_.rank, " as one of ", me_.count, ": start all ranks with the same launcher");
    if (said.rank < 0 || said.rank >= me_.count || said.rank == me_.rank)
      throw DeviceError("rank ", said.rank, " of ", me_.count, " connected to rank ", me_.rank,
                        ": start all ranks with the same launcher");
    return said;
  }

  Hello own_hello() const { return {.rank = me_.rank, .count = me_.count}; }

  [[noreturn]] void missing(int ranks) const {
    throw DeviceError("rank ", me_.rank, " of ", me_.count, " has waited ", patience_, " s at ", me_.address,
                      " port ", me_.port, ", and ", ranks, ranks == 1 ? " rank has" : " ranks have",
                      " not connected: start all of them, or wait longer with --timeout");
  }

  /// Runs on rank 0: the other ranks connect, and learn the addresses at which the others listen.
  void gather(Deadline deadline) {
    const Socket door = listening(resolved(me_.address, me_.port));
    std::vector<Address> listens(std::size_t(me_.count));
    Address here = own_address(door);
    here.port() = htons(kAnyPort);
    const Socket listener = listening(here);
    listens[0] = own_address(listener);
    for (int met = 1; met < me_.count;) {
      Socket socket = accepted(door, deadline);
      if (!socket && Clock::now() >= deadline) missing(me_.count - met);
      const std::optional<Hello> said = hello(socket, deadline);
      if (!said) continue;  // not one of our processes
      if (watched_[std::size_t(said->rank)])
        throw DeviceError("two processes were started as rank ", said->rank,
                          ": start all ranks with the same launcher");
      listens[std::size_t(said->rank)] = said->listens;
      watched_[std::size_t(said->rank)] = std::move(socket);
      ++met;
    }
    for (const Socket& socket : watched_)
      if (socket) send_all(socket, listens.data(), listens.size() * sizeof(Address));
    connect_all(listener, listens, deadline);
  }

  /// Runs on the other ranks: connects to rank 0 first.
  void go_to_first(Deadline deadline) {
    Socket& first = watched_[0] = connected(resolved(me_.address, me_.port), deadline);
    if (!first) missing(1);
    Address here = own_address(first);
    here.port() = htons(kAnyPort);
    const Socket listener = listening(here);
    Hello mine = own_hello();
    mine.listens = own_address(listener);
    std::vector<Address> listens(std::size_t(me_.count));
    if (!send_all(first, &mine, sizeof mine) ||
        !receive_all(first, listens.data(), listens.size() * sizeof(Address), deadline))
      throw DeviceError("rank 0 exited, or timed out waiting for other ranks, while rank ", me_.rank, " of ",
                        me_.count, " was connecting to it at ", me_.address, " port ", me_.port);
    connect_all(listener, listens, deadline);
  }

  /// Connects each pair of ranks for messages: the higher rank connects to the lower one.
  void connect_all(const Socket& listener, const std::vector<Address>& listens, Deadline deadline) {
    for (int other = 0; other < me_.rank; ++other) {
      Socket socket = connected(listens[std::size_t(other)], deadline);
      const Hello mine = own_hello();
      if (!socket || !send_all(socket, &mine, sizeof mine))
        throw DeviceError("rank ", me_.rank, " cannot reach rank ", other, ": allow connections from rank ",
                          me_.rank, "'s host to rank ", other, "'s");
      data_[std::size_t(other)] = std::move(socket);
    }
    for (int met = me_.rank + 1; met < me_.count;) {
      Socket socket = accepted(listener, deadline);
      if (!socket && Clock::now() >= deadline) missing(me_.count - met);
      const std::optional<Hello> said = hello(socket, deadline);
      if (!said) continue;
      data_[std::size_t(said->rank)] = std::move(socket);
      ++met;
    }
  }

  // ---- whether they are there

  void watch() {
    std::vector<char> has_parted(watched_.size());
    for (Deadline told = {};;) {
      const bool parting = has_parted_;
      const bool tells = parting || Clock::now() - told >= kHeartbeat;
      if (tells) told = Clock::now();
      std::vector<pollfd> open;
      std::vector<int> ranks;
      for (int rank = 0; rank < me_.count; ++rank)
        if (const Socket& socket = watched_[std::size_t(rank)]; socket && !has_parted[std::size_t(rank)]) {
          const char word = char(parting ? Word::parting : Word::alive);
          if (tells) ::send(socket.get(), &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
          open.push_back({socket.get(), POLLIN, 0});
          ranks.push_back(rank);
        }
      if (parting) return;
      ::poll(open.data(), nfds_t(open.size()), int(kHeartbeat.count() / 5));
      for (std::size_t i = 0; i < open.size(); ++i) {
        const int rank = ranks[i];
        if (open[i].revents != 0) {
          char said[64];
          const ssize_t bytes = ::recv(open[i].fd, said, sizeof said, MSG_DONTWAIT);
          if (bytes > 0) {
            heard_[std::size_t(rank)] = Clock::now();
            const std::string_view words(said, std::size_t(bytes));
            if (const auto lost = words.find(char(Word::lost)); lost != words.npos && lost + 1 < words.size())
              end_without(int(static_cast<unsigned char>(words[lost + 1])), "rank 0 says so");
            has_parted[std::size_t(rank)] = words.find(char(Word::parting)) != words.npos;
          } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
            end_without(rank, "it ended before its work was done");
          }
        }
        if (std::chrono::duration<double>(Clock::now() - heard_[std::size_t(rank)]).count() > patience_)
          end_without(rank, concat("it has not responded for ", patience_, " s"));
      }
    }
  }

  /// Ends this process immediately. Its output files are then either complete or absent (app/whole_file.h).
  [[noreturn]] void end_without(int rank, const std::string& why) {
    for (const Socket& socket : watched_) {
      const char words[2] = {char(Word::lost), char(rank)};
      if (socket && me_.rank == 0) ::send(socket.get(), words, 2, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    std::fprintf(stderr, "rank %d of %d exits because rank %d was lost: %s\n", me_.rank, me_.count, rank,
                 why.c_str());
    std::fflush(stderr);
    std::_Exit(1);
  }

  const Launched me_;
  const double patience_;
  std::vector<Socket> watched_;  ///< on rank 0, connections to all other ranks; on others, to rank 0
  std::vector<Socket> data_;     ///< connections to each other rank
  std::vector<Deadline> heard_;
  std::atomic<bool> has_parted_ = false;
  std::thread watcher_;
};

Processes::Processes(const Launched& launched, double patience)
    : peers_(std::make_unique<Peers>(launched, patience)) {}
Processes::~Processes() = default;

int Processes::rank() const { return peers_->me().rank; }
int Processes::count() const { return peers_->me().count; }
int Processes::local() const { return peers_->me().local; }
void Processes::part() { peers_->part(); }

void Processes::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) {
  peers_->exchange(sends, receives);
}

namespace {

// Never deleted, so that a process that returns from main without parting is noticed by the others.
Processes* met = nullptr;

}  // namespace

Processes* processes() { return met; }

void meet_processes(double patience) {
  if (const std::optional<Launched> found = launched(); found && met == nullptr)
    met = new Processes(*found, patience);
}

void part_from_processes() {
  if (met != nullptr) met->part();
}

}  // namespace flashbook::device
