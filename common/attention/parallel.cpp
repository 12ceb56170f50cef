#include "common/attention/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace flashbook {

void parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next = 0;
  std::mutex error_mutex;
  std::exception_ptr error;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };

  {
    const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::jthread> helpers;  // joined at the end of this block
    try {
      for (int64_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // The system provides no more threads: the existing ones, at least this one, do all the work.
    }
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace flashbook
