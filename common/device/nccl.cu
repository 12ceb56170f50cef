/// \file
/// Ranks that use NCCL, if nccl.h is available at compile time and libnccl.so.2 at run time.
#include <dlfcn.h>

#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device/backend.h"
#include "common/device/ranks.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace flashbook::device::backend {
#if __has_include(<nccl.h>)
namespace {

/// The library functions that are used. The library is opened on first use, so it need not be linked.
struct Library {
  decltype(&ncclGetVersion) version;
  decltype(&ncclCommInitAll) init_all;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclGetErrorString) error_string;

  void check(ncclResult_t result, const char* call) const {
    if (result != ncclSuccess) throw DeviceError(call, ": ", error_string(result));
  }
};

/// Returns the library; null if it is not installed or lacks a function.
const Library* library() {
  static const auto opened = []() -> std::pair<Library, bool> {
    Library library{};
    void* const file = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) return {library, false};
    bool complete = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(file, name));
      complete &= function != nullptr;
    };
    find(library.version, "ncclGetVersion");
    find(library.init_all, "ncclCommInitAll");
    find(library.abort, "ncclCommAbort");
    find(library.send, "ncclSend");
    find(library.receive, "ncclRecv");
    find(library.group_start, "ncclGroupStart");
    find(library.group_end, "ncclGroupEnd");
    find(library.error_string, "ncclGetErrorString");
    return {library, complete};
  }();
  return opened.second ? &opened.first : nullptr;
}

/// Communicators of devices 0 to count - 1. They are expensive to create, so they are kept.
class Communicators {
 public:
  static Communicators& all() {
    static auto& all = *new Communicators;  // never destroyed, since NCCL's own threads may outlive main
    return all;
  }

  const std::vector<ncclComm_t>& of(int count) {
    const std::lock_guard lock(mutex_);
    std::vector<ncclComm_t>& made = by_count_[count];
    if (made.empty()) {
      std::vector<ncclComm_t> fresh(std::size_t(count), nullptr);
      library()->check(library()->init_all(fresh.data(), count, nullptr), "ncclCommInitAll");
      made = std::move(fresh);
    }
    return made;
  }

  /// Aborts all pending work in these communicators; the next run creates new ones.
  void abort(int count) {
    const std::lock_guard lock(mutex_);
    const auto found = by_count_.find(count);
    if (found == by_count_.end()) return;
    for (const ncclComm_t communicator : found->second) library()->abort(communicator);
    by_count_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<ncclComm_t>> by_count_;
};

class NcclRank final : public Rank {
 public:
  NcclRank(int number, int count, ncclComm_t communicator)
      : number_(number), count_(count), communicator_(communicator) {}
  int number() const override { return number_; }
  int count() const override { return count_; }
  Transport transport() const override { return Transport::nccl; }

  void exchange(Queue& queue, const std::vector<Message>& sends,
                const std::vector<Message>& receives) override {
    const Library& nccl = *library();
    nccl.check(nccl.group_start(), "ncclGroupStart");
    for (const Message& message : sends)
      nccl.check(
          nccl.send(message.data, message.bytes, ncclUint8, message.rank, communicator_, queue.stream()),
          "ncclSend");
    for (const Message& message : receives)
      nccl.check(
          nccl.receive(message.data, message.bytes, ncclUint8, message.rank, communicator_, queue.stream()),
          "ncclRecv");
    nccl.check(nccl.group_end(), "ncclGroupEnd");
  }

 private:
  const int number_, count_;
  const ncclComm_t communicator_;
};

}  // namespace

std::string why_not_nccl(int ranks) {
  if (library() == nullptr) return "libnccl.so.2 was not found: install NCCL, or send messages by copies";
  if (const int devices = device_count(); ranks > devices)
    return concat("NCCL needs one GPU per rank, but ", ranks, " ranks share ", devices,
                  ": give fewer ranks, or send messages by copies");
  return "";
}

std::string nccl_version() {
  int version = 0;
  if (library() == nullptr) return "";
  library()->check(library()->version(&version), "ncclGetVersion");
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

void run_nccl_ranks(int count, const std::function<void(Rank&)>& body) {
  const std::vector<ncclComm_t> communicators = Communicators::all().of(count);
  std::mutex mutex;
  std::exception_ptr error;  // from the first rank that failed
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number)
    threads.emplace_back([&, number] {
      try {
        use_device(device_of_rank(number));
        NcclRank rank(number, count, communicators[std::size_t(number)]);
        body(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (error) return;
        error = std::current_exception();
        Communicators::all().abort(count);  // other ranks may be waiting for this one
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

#else

std::string why_not_nccl(int) {
  return "this was compiled without nccl.h: install NCCL and build again, or send messages by copies";
}

std::string nccl_version() { return ""; }

void run_nccl_ranks(int ranks, const std::function<void(Rank&)>&) { throw UsageError(why_not_nccl(ranks)); }

#endif
}  // namespace flashbook::device::backend
