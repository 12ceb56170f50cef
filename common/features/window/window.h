/// \file
/// A band of keys around each query's own key.
#pragma once

namespace flashbook {

/// A band of keys around each query's own key, aligned to the bottom right: query i of S_q sees keys i + S_k
/// - S_q - left ... i + S_k - S_q + right, FlashAttention's window_size. -1: no limit on that side.
struct Window {
  int left = -1;
  int right = -1;
  int sinks = 0;  ///< leading keys that every query sees regardless of `left`, but not beyond `right`

  bool operator==(const Window&) const = default;
};

}  // namespace flashbook
