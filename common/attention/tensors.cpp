#include "common/attention/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "common/attention/parallel.h"
#include "common/concat.h"
#include "common/features/definition.h"
#include "common/numeric/float_formats.h"

namespace flashbook {
namespace {

/// Returns the smallest power of two for which `largest` fits e4m3, but at least 2^-100, whose reciprocal is
/// a float; the scale of a block of zeros is 2^-100.
float power_of_two_scale(float largest) {
  // After subtracting a column's mean, an element may exceed 448 by a float's rounding: it counts as 448.
  constexpr float kRounding = 1 - 0x1p-10f;
  int exponent;
  std::frexp(largest * kRounding / 448, &exponent);
  return std::ldexp(1.0f, largest == 0 ? -100 : std::max(exponent, -100));
}

constexpr int64_t kElementsAtOnce = 1 << 14, kRowsAtOnce = 64;  // units of work that a core receives

/// `scale_of(row)` is the index of a row's scale among the `scales` scales.
template <typename ScaleOf>
Encoded encode_scaled(const Sizes& sizes, std::span<const float> values, int64_t scales, ScaleOf scale_of) {
  const int64_t dims = sizes.head_dim, rows = int64_t(values.size()) / dims;
  std::vector<float> largest(rows);
  parallel_for_blocks(rows, kRowsAtOnce, [&](int64_t row) {
    for (float value : values.subspan(row * dims, dims))
      largest[row] = std::max(largest[row], std::abs(value));
  });
  Encoded encoded;
  encoded.scales.resize(scales);
  for (int64_t row = 0; row < rows; ++row) {
    float& scale = encoded.scales[scale_of(row)];
    scale = std::max(scale, largest[row]);
  }
  for (float& scale : encoded.scales) scale = power_of_two_scale(scale);
  std::vector<float> scaled(values.begin(), values.end());
  parallel_for_blocks(rows, kRowsAtOnce, [&](int64_t row) {
    const float scale = encoded.scales[scale_of(row)];
    for (float& value : std::span(scaled).subspan(row * dims, dims)) value /= scale;
  });
  encoded.bytes = encode(DType::e4m3, scaled);
  return encoded;
}

/// Adds `factor` times the mean of its column to each element of K or V.
void add_means(const Sizes& sizes, std::span<float> values, std::span<const float> means, float factor) {
  const int64_t dims = sizes.head_dim;
  parallel_for_blocks(sizes.k_rows(), kRowsAtOnce, [&](int64_t row) {
    const float* mean = &means[row / sizes.seqlen_k * dims];
    for (int64_t c = 0; c < dims; ++c) values[row * dims + c] += factor * mean[c];
  });
}

/// Returns the means of the columns of K or V: [batch, kv_heads, head_dim].
std::vector<float> means_of(const Spec& spec, std::span<const float> values) {
  const int64_t dims = spec.head_dim;
  std::vector<float> means(spec.k_columns());
  parallel_for(int64_t(spec.batch) * spec.kv_heads, [&](int64_t head) {
    std::vector<double> sums(dims);
    for (int64_t row = head * spec.seqlen_k; row < (head + 1) * spec.seqlen_k; ++row)
      for (int64_t c = 0; c < dims; ++c) sums[c] += values[row * dims + c];
    for (int64_t c = 0; c < dims; ++c) means[head * dims + c] = float(sums[c] / spec.seqlen_k);
  });
  return means;
}

/// Encodes latent keys as rows of elements, scales and position.
Encoded encode_latent_rows(const Spec& spec, std::span<const float> values) {
  Encoded encoded;
  const auto append = [&](std::span<const std::byte> part) {
    encoded.bytes.insert(encoded.bytes.end(), part.begin(), part.end());
  };
  for (; !values.empty(); values = values.subspan(kLatentKeyDim)) {
    const Encoded elements = encode_scaled({.head_dim = kLatentColumnsPerScale},
                                           values.first(kLatentValueDim), kLatentScales, std::identity());
    append(elements.bytes);
    append(std::as_bytes(std::span(elements.scales)));
    append(encode(spec.dtype, values.subspan(kLatentValueDim, kLatentKeyDim - kLatentValueDim)));
  }
  return encoded;
}

std::vector<float> decode_latent_rows(const Spec& spec, std::span<const std::byte> bytes) {
  std::vector<float> values;
  for (; !bytes.empty(); bytes = bytes.subspan(kLatentRowBytes)) {
    const auto elements = decode(DType::e4m3, bytes.first(kLatentValueDim));
    const auto scales = decode(DType::f32, bytes.subspan(kLatentValueDim, kLatentScales * sizeof(float)));
    const auto position = decode(spec.dtype, bytes.first(kLatentRowBytes).subspan(kLatentPositionAt));
    for (std::size_t c = 0; c < elements.size(); ++c)
      values.push_back(elements[c] * scales[c / kLatentColumnsPerScale]);
    values.insert(values.end(), position.begin(), position.end());
  }
  return values;
}

/// Expects and returns the default layout.
Encoded encode_tensor(const Spec& spec, TensorId id, std::span<const float> values,
                      std::span<const float> means) {
  const DType type = type_of(spec, id);
  if (type != DType::e4m3) return {encode(type, values), {}};
  if (spec.has_latent_rows_in_e4m3()) return encode_latent_rows(spec, values);
  if (id == TensorId::q)
    return encode_scaled(spec, values, spec.q_scales(), [&](int64_t row) { return spec.q_scale_of(row); });
  if (spec.e4m3.mean_subtracted != !means.empty())
    throw std::logic_error("round_inputs finds the means of a mean-subtracted shape, and of no other");
  std::vector<float> without_means(values.begin(), values.end());
  if (spec.e4m3.mean_subtracted) add_means(spec, without_means, means, -1);
  Encoded encoded =
      encode_scaled(spec, without_means, spec.k_scales(), [&](int64_t row) { return spec.k_scale_of(row); });
  if (spec.paging.rows > 0 && spec.e4m3.scaling == Scaling::head)  // sequences share scales
    for (std::size_t i = spec.kv_heads; i < encoded.scales.size(); ++i)
      encoded.scales[i] = encoded.scales[i - spec.kv_heads];
  return encoded;
}

/// Returns the members of Inputs or Outputs for each tensor, in the order of TensorId; null if none.
template <typename Of, std::size_t kCount>
auto& member(Of& of, TensorId id, std::vector<float> std::remove_const_t<Of>::*const (&members)[kCount]) {
  if (members[int(id)] == nullptr) throw std::logic_error(concat(name_of(id), " is not among these tensors"));
  return of.*members[int(id)];
}

constexpr std::vector<float> Inputs::*kInputs[] = {
    &Inputs::q, &Inputs::k, &Inputs::v, &Inputs::o, &Inputs::lse, &Inputs::d_o, nullptr, nullptr, nullptr};
constexpr std::vector<float> Outputs::*kOutputs[] = {
    nullptr, nullptr, nullptr, &Outputs::o, &Outputs::lse, nullptr, &Outputs::dq, &Outputs::dk, &Outputs::dv};

}  // namespace

std::vector<float>& Inputs::operator[](TensorId id) { return member(*this, id, kInputs); }
const std::vector<float>& Inputs::operator[](TensorId id) const { return member(*this, id, kInputs); }
std::vector<float>& Outputs::operator[](TensorId id) { return member(*this, id, kOutputs); }
const std::vector<float>& Outputs::operator[](TensorId id) const { return member(*this, id, kOutputs); }

std::span<const float> Inputs::means(TensorId id) const {
  if (id == TensorId::k) return k_mean;
  if (id == TensorId::v) return v_mean;
  return {};
}

void Tensors::set(TensorId id, void* address) {
  if (id == TensorId::q) q = address;
  if (id == TensorId::k) k = address;
  if (id == TensorId::v) v = address;
  if (id == TensorId::o) o = address;
  if (id == TensorId::lse) lse = static_cast<float*>(address);
  if (id == TensorId::d_o) d_o = address;
  if (id == TensorId::dq) dq = address;
  if (id == TensorId::dk) dk = address;
  if (id == TensorId::dv) dv = address;
}

std::vector<FeatureTable> tables_of(const Spec& spec) {
  std::vector<FeatureTable> tables;
  for (const Definition* feature : having(&Definition::tables, spec))
    for (const FeatureTable& table : feature->tables(spec))
      if (!table.bytes.empty()) tables.push_back(table);
  return tables;
}

Encoded encode_input(const Spec& spec, TensorId id, std::span<const float> values,
                     std::span<const float> means) {
  Encoded encoded = encode_tensor(spec, id, values, means);
  if (spec.layout.of(id) == Strides{}) return encoded;
  const std::size_t size = size_of(type_of(spec, id));
  std::vector<std::byte> strided(elements_spanned(spec, id) * size, std::byte(kPoison));
  scatter(spec, id, encoded.bytes, strided, size);
  encoded.bytes = std::move(strided);
  return encoded;
}

std::vector<float> decode_output(const Spec& spec, TensorId id, std::span<const std::byte> bytes) {
  const DType type = type_of(spec, id);
  if (spec.layout.of(id) == Strides{}) return decode(type, bytes);
  std::vector<std::byte> dense(elements_of(spec, id) * size_of(type));
  gather(spec, id, bytes, dense, size_of(type));
  return decode(type, dense);
}

std::vector<std::byte> encode(DType type, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  with_host_type(type, [&]<typename T>(T) {
    parallel_for_blocks(int64_t(values.size()), kElementsAtOnce, [&](int64_t i) {
      const T encoded = from_float<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &encoded, sizeof(T));
    });
  });
  return bytes;
}

std::vector<float> decode(DType type, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  with_host_type(type, [&]<typename T>(T) {
    parallel_for_blocks(int64_t(values.size()), kElementsAtOnce, [&](int64_t i) {
      T encoded;
      std::memcpy(&encoded, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = to_float(encoded);
    });
  });
  return values;
}

void round_to(DType type, std::span<float> values) {
  with_host_type(type, [&]<typename T>(T) {
    for (float& value : values) value = to_float(from_float<T>(value));
  });
}

EncodedInputs encode_inputs(const Spec& spec, const Inputs& inputs) {
  const auto input = [&](TensorId id) { return encode_input(spec, id, inputs[id], inputs.means(id)); };
  return {input(TensorId::q), input(TensorId::k), input(TensorId::v)};
}

void round_inputs(const Spec& spec, Inputs& inputs) {
  if (spec.e4m3.mean_subtracted && inputs.k_mean.empty()) {
    inputs.k_mean = means_of(spec, inputs.k);
    inputs.v_mean = means_of(spec, inputs.v);
  }
  for (TensorId id : {TensorId::q, TensorId::k, TensorId::v}) {
    const std::span<const float> means = inputs.means(id);
    const auto [bytes, scales] = encode_tensor(spec, id, inputs[id], means);
    const bool by_row = id == TensorId::k && spec.has_latent_rows_in_e4m3();
    std::vector<float>& values = inputs[id] =
        by_row ? decode_latent_rows(spec, bytes) : decode(type_of(spec, id), bytes);
    if (scales.empty()) continue;
    const int64_t dims = spec.head_dim;
    parallel_for_blocks(int64_t(values.size()) / dims, kRowsAtOnce, [&, &scales = scales](int64_t row) {
      const float scale = scales[id == TensorId::q ? spec.q_scale_of(row) : spec.k_scale_of(row)];
      for (float& value : std::span(values).subspan(row * dims, dims)) value *= scale;
    });
    if (!means.empty()) add_means(spec, values, means, 1);
  }
  round_to(type_of(spec, TensorId::o), inputs.o);
  round_to(type_of(spec, TensorId::d_o), inputs.d_o);
}

}  // namespace flashbook
