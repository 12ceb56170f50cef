#include <cstring>
#include <utility>

#include "common/device/backend.h"
#include "common/device/device.h"
#include "common/device/host_memory.h"

namespace flashbook::device {
namespace {

constexpr unsigned char kPoisonByte = 0xff;

void require_size(const char* copy, std::size_t got, std::size_t buffer) {
  if (got != buffer) throw DeviceError(copy, " of ", got, " bytes: the buffer has ", buffer);
}

}  // namespace

int64_t (*granted_shared_bytes)() = shared_bytes_of_block;

Buffer::Buffer(Place place, std::size_t bytes) : place_(place), bytes_(bytes) {
  if (bytes == 0) return;
  data_ = place == Place::host ? allocate_host_memory(bytes) : backend::allocate(bytes);
  poison();
}

Buffer::~Buffer() {
  if (!data_) return;
  if (place_ == Place::host)
    free_host_memory(data_);
  else
    backend::free(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : place_(other.place_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(place_, other.place_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Buffer::upload(std::span<const std::byte> source) {
  require_size("upload", source.size(), bytes_);
  upload(source, 0);
}

void Buffer::upload(std::span<const std::byte> source, std::size_t offset) {
  if (offset > bytes_ || source.size() > bytes_ - offset)
    throw DeviceError("upload of ", source.size(), " bytes to byte ", offset, ": the buffer has ", bytes_);
  if (source.empty()) return;
  auto* to = static_cast<std::byte*>(data_) + offset;
  if (place_ == Place::host)
    std::memcpy(to, source.data(), source.size());
  else
    backend::copy(to, source.data(), source.size());
}

void Buffer::download(std::span<std::byte> target) const {
  require_size("download", target.size(), bytes_);
  if (bytes_ == 0) return;
  if (place_ == Place::host)
    std::memcpy(target.data(), data_, bytes_);
  else
    backend::copy(target.data(), data_, bytes_);
}

void Buffer::poison() {
  if (bytes_ == 0) return;
  if (place_ == Place::host)
    std::memset(data_, kPoisonByte, bytes_);
  else
    backend::poison(data_, kPoisonByte, bytes_);
}

}  // namespace flashbook::device
