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
/// disappears. Elsewhere a line is printed only if none was printed in the last four seconds.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)) {
    if (terminal_ || is_due()) std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", what_.c_str());
  }
  ~ProgressLine() {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `fraction` is the completed part, 0 to 1.
  void update(double fraction) {
    if (is_due())
      std::fprintf(stderr, terminal_ ? "\r\033[K%s: %.0f %%" : "%s: %.0f %%\n", what_.c_str(),
                   100 * fraction);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static bool is_due() {
    if (Clock::now() < next_) return false;
    next_ = Clock::now() + pause();
    return true;
  }
  static std::chrono::milliseconds pause() { return std::chrono::milliseconds(terminal_ ? 200 : 4'000); }

  const std::string what_;
  inline static const bool terminal_ = isatty(STDERR_FILENO) == 1;
  inline static Clock::time_point next_ = Clock::now() + pause();
};

}  // namespace flashbook
