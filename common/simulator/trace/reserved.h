/// \file
/// Large tables of which little is used. Internal to the simulator.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace flashbook::sim {

/// An array of zeros that takes memory only where it is written.
template <typename T>
class Reserved {
 public:
  Reserved() = default;
  explicit Reserved(std::size_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ == 0) return;
    void* data =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
  }
  ~Reserved() {
    if (data_) munmap(data_, bytes_);
  }
  Reserved(Reserved&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reserved& operator=(Reserved&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::size_t size() const { return bytes_ / sizeof(T); }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace flashbook::sim
