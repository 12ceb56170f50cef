#include "common/app/progress.h"

#include <unistd.h>

#include <cstdio>

namespace flashbook {

using std::chrono::steady_clock;

ProgressLine::ProgressLine(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {
  next_ = steady_clock::now() + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
  if (terminal_) std::fprintf(stderr, "\r\033[K%s", what_.c_str());
}

ProgressLine::~ProgressLine() {
  if (terminal_) std::fprintf(stderr, "\r\033[K");
}

void ProgressLine::update(double fraction) {
  if (steady_clock::now() < next_) return;
  next_ = steady_clock::now() + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
  std::fprintf(stderr, terminal_ ? "\r\033[K%s: %.0f %%" : "%s: %.0f %%\n", what_.c_str(), 100 * fraction);
}

}  // namespace flashbook
