/// \file
/// Arrays on the device, for tests of kernels.
#pragma once
#include <span>
#include <vector>

#include "common/device/device.h"

namespace flashbook {

/// An array in device memory: filled from the host, or poisoned.
template <typename T>
class Values {
 public:
  explicit Values(std::size_t count) : buffer_(device::Place::device, count * sizeof(T)) {}
  explicit Values(const std::vector<T>& values) : Values(values.size()) {
    buffer_.upload(std::as_bytes(std::span(values)));
  }
  T* data() const { return static_cast<T*>(buffer_.data()); }
  std::vector<T> get() const {
    std::vector<T> values(buffer_.bytes() / sizeof(T));
    buffer_.download(std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  device::Buffer buffer_;
};

}  // namespace flashbook
