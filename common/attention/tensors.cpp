#include "common/attention/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/numeric/float_formats.h"

namespace flashbook {
namespace {

/// The smallest power of two with which `largest` fits e4m3. 1 for a block of zeros; never so small that
/// multiplications lose it.
float power_of_two_scale(float largest) {
  if (largest == 0) return 1;
  int exponent;
  const float mantissa = std::frexp(largest / 448, &exponent);
  return std::ldexp(1.0f, std::max(mantissa == 0.5f ? exponent - 1 : exponent, -100));
}

/// `scale_of(row)` is which of the `scales` scales a row has.
template <typename ScaleOf>
Encoded encode_tensor(const Shape& shape, std::span<const float> values, int64_t scales, ScaleOf scale_of) {
  if (shape.dtype != DType::e4m3) return {encode(shape.dtype, values), {}};
  Encoded encoded;
  encoded.scales.resize(scales);
  const int64_t elements = int64_t(values.size()), dims = shape.head_dim;
  for (int64_t i = 0; i < elements; ++i) {
    float& largest = encoded.scales[scale_of(i / dims)];
    largest = std::max(largest, std::abs(values[i]));
  }
  for (float& scale : encoded.scales) scale = power_of_two_scale(scale);
  std::vector<float> scaled(elements);
  for (int64_t i = 0; i < elements; ++i) scaled[i] = values[i] / encoded.scales[scale_of(i / dims)];
  encoded.bytes = encode(shape.dtype, scaled);
  return encoded;
}

}  // namespace

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

EncodedInputs encode_inputs(const Shape& shape, const Inputs& inputs) {
  const auto of_query = [&](int64_t row) { return shape.q_scale_of(row); };
  const auto of_key = [&](int64_t row) { return shape.k_scale_of(row); };
  return {encode_tensor(shape, inputs.q, shape.q_scales(), of_query),
          encode_tensor(shape, inputs.k, shape.k_scales(), of_key),
          encode_tensor(shape, inputs.v, shape.k_scales(), of_key)};
}

void round_inputs(const Shape& shape, Inputs& inputs) {
  const EncodedInputs encoded = encode_inputs(shape, inputs);
  inputs.q = decode(shape.dtype, encoded.q.bytes);
  inputs.k = decode(shape.dtype, encoded.k.bytes);
  inputs.v = decode(shape.dtype, encoded.v.bytes);
  if (shape.dtype != DType::e4m3) return;
  for (int64_t i = 0; i < shape.q_elements(); ++i)
    inputs.q[i] *= encoded.q.scales[shape.q_scale_of(i / shape.head_dim)];
  for (int64_t i = 0; i < shape.k_elements(); ++i) {
    const int64_t scale = shape.k_scale_of(i / shape.head_dim);
    inputs.k[i] *= encoded.k.scales[scale];
    inputs.v[i] *= encoded.v.scales[scale];
  }
}

}  // namespace flashbook
