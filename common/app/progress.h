/// \file
/// Signs of life on stderr during long work.
#pragma once
#include <chrono>
#include <string>

namespace flashbook {

/// A line such as "checking step 2 against the oracle: 43 %". On a terminal it is rewritten in place and
/// vanishes; elsewhere nothing is printed before ten seconds have passed, and then a line every ten.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `fraction` is the part done, 0 to 1.
  void update(double fraction);

 private:
  std::string what_;
  bool terminal_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace flashbook
