/// \file
/// Large, sparsely used tables. Internal to the simulator.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace flashbook::sim {

/// A zero-initialised array that uses memory only for pages that are written.
template <typename T>
class Reserved {
 public:
  Reserved() = default;
  explicit Reserved(std::size_t count) : size_(count) {
    if (size_ == 0) return;
    void* data =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(data);
  }
  ~Reserved() {
    if (data_) munmap(data_, bytes());
  }
  Reserved(Reserved&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Reserved& operator=(Reserved&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace flashbook::sim
