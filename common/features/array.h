/// \file
/// Arrays of numbers that belong to a feature.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace flashbook {

/// An array of numbers in a problem: a vector on the host, or a caller's array in device memory, of which the
/// host knows only the length.
template <typename T>
struct Array : std::vector<T> {
  using std::vector<T>::vector;
  Array(std::vector<T> values) : std::vector<T>(std::move(values)) {}  // NOLINT: a vector is one

  static Array on_device(int64_t count) {
    Array array;
    array.count_on_device_ = count;
    return array;
  }
  bool is_on_device() const { return count_on_device_ > 0; }

  std::size_t size() const { return is_on_device() ? std::size_t(count_on_device_) : std::vector<T>::size(); }
  bool empty() const { return size() == 0; }
  void clear() { *this = {}; }
  bool operator==(const Array&) const = default;

 private:
  int64_t count_on_device_ = 0;
};

}  // namespace flashbook
