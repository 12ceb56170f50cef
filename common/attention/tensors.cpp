#include "common/attention/tensors.h"

#include <cstring>

#include "common/numeric/float_formats.h"

namespace flashbook {

std::vector<std::byte> encode(DType type, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  with_host_type(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T encoded = from_float<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &encoded, sizeof(T));
    }
  });
  return bytes;
}

std::vector<float> decode(DType type, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  with_host_type(type, [&]<typename T>(T encoded) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&encoded, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = to_float(encoded);
    }
  });
  return values;
}

void round_to(DType type, std::span<float> values) {
  with_host_type(type, [&]<typename T>(T) {
    for (float& value : values) value = to_float(from_float<T>(value));
  });
}

}  // namespace flashbook
