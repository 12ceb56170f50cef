/// \file
/// Progress messages on stderr during long work.
#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace flashbook {

/// A line such as "checking step 2 against the oracle: 43 %". On a terminal it is rewritten in place and
/// disappears; otherwise nothing is printed in the first ten seconds, and then a line every ten seconds.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)), next_(Clock::now() + pause()) {
    if (terminal_) std::fprintf(stderr, "\r\033[K%s", what_.c_str());
  }
  ~ProgressLine() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `fraction` is the part that is done, 0 to 1.
  void update(double fraction) {
    if (Clock::now() < next_) return;
    next_ = Clock::now() + pause();
    std::fprintf(stderr, terminal_ ? "\r\033[K%s: %.0f %%" : "%s: %.0f %%\n", what_.c_str(), 100 * fraction);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds pause() const { return std::chrono::milliseconds(terminal_ ? 200 : 10'000); }

  const std::string what_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  Clock::time_point next_;
};

}  // namespace flashbook
