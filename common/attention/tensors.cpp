#include "common/attention/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "common/numeric/float_formats.h"

namespace flashbook {
namespace {

/// The smallest power of two with which `largest` fits e4m3, but at least 2^-100, whose reciprocal is a float
/// and which a block of zeros has: of block scales of V the largest count.
float power_of_two_scale(float largest) {
  // What the mean of its column was taken from may lie beyond 448 by a float's rounding, and is 448.
  constexpr float kRounding = 1 - 0x1p-10f;
  int exponent;
  std::frexp(largest * kRounding / 448, &exponent);
  return std::ldexp(1.0f, largest == 0 ? -100 : std::max(exponent, -100));
}

/// `scale_of(row)` is which of the `scales` scales a row has.
template <typename ScaleOf>
Encoded encode_scaled(const Shape& shape, std::span<const float> values, int64_t scales, ScaleOf scale_of) {
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

/// Where the mean of an element of K or V stands.
int64_t column_of(const Shape& shape, int64_t element) {
  const int64_t head = element / shape.head_dim / shape.seqlen_k;
  return head * shape.head_dim + element % shape.head_dim;
}

/// The mean of each column of K or V.
std::vector<float> means_of(const Shape& shape, std::span<const float> values) {
  std::vector<double> sums(shape.k_columns());
  for (int64_t i = 0; i < shape.k_elements(); ++i) sums[column_of(shape, i)] += values[i];
  std::vector<float> means;
  for (double sum : sums) means.push_back(float(sum / shape.seqlen_k));
  return means;
}

/// In the default layout.
Encoded encode_tensor(const Shape& shape, TensorId id, std::span<const float> values,
                      std::span<const float> means) {
  const DType type = type_of(shape, id);
  if (type != DType::e4m3) return {encode(type, values), {}};
  if (id == TensorId::q)
    return encode_scaled(shape, values, shape.q_scales(), [&](int64_t row) { return shape.q_scale_of(row); });
  if (shape.mean_subtracted != !means.empty())
    throw std::logic_error("round_inputs finds the means of a mean-subtracted shape, and of no other");
  std::vector<float> without_means(values.begin(), values.end());
  if (shape.mean_subtracted)
    for (int64_t i = 0; i < shape.k_elements(); ++i) without_means[i] -= means[column_of(shape, i)];
  return encode_scaled(shape, without_means, shape.k_scales(),
                       [&](int64_t row) { return shape.k_scale_of(row); });
}

/// The member of Inputs, Outputs or Tensors that a tensor is.
template <typename Of>
auto& member(Of& of, TensorId id) {
  switch (id) {
    case TensorId::q:
      if constexpr (requires { of.q; }) return of.q;
      break;
    case TensorId::k:
      if constexpr (requires { of.k; }) return of.k;
      break;
    case TensorId::v:
      if constexpr (requires { of.v; }) return of.v;
      break;
    case TensorId::o:
      if constexpr (requires { of.o; }) return of.o;
      break;
    case TensorId::lse:
      if constexpr (requires { of.lse; }) return of.lse;
      break;
    case TensorId::d_o:
      if constexpr (requires { of.d_o; }) return of.d_o;
      break;
    case TensorId::dq:
      if constexpr (requires { of.dq; }) return of.dq;
      break;
    case TensorId::dk:
      if constexpr (requires { of.dk; }) return of.dk;
      break;
    case TensorId::dv:
      if constexpr (requires { of.dv; }) return of.dv;
      break;
  }
  throw std::logic_error(std::string(name_of(id)) + " is not among these tensors");
}

template <typename T>
void add_table(std::vector<ShapeTable>& tables, TableId id, std::string_view name,
               const std::vector<T>& values) {
  if (!values.empty()) tables.push_back({id, name, std::as_bytes(std::span(values))});
}

}  // namespace

std::vector<float>& Inputs::operator[](TensorId id) { return member(*this, id); }
const std::vector<float>& Inputs::operator[](TensorId id) const { return member(*this, id); }
std::vector<float>& Outputs::operator[](TensorId id) { return member(*this, id); }
const std::vector<float>& Outputs::operator[](TensorId id) const { return member(*this, id); }

std::span<const float> Inputs::means(TensorId id) const {
  if (id == TensorId::k) return k_mean;
  if (id == TensorId::v) return v_mean;
  return {};
}

void Tensors::set(TensorId id, void* address) {
  switch (id) {
    case TensorId::q:
      q = address;
      break;
    case TensorId::k:
      k = address;
      break;
    case TensorId::v:
      v = address;
      break;
    case TensorId::o:
      o = address;
      break;
    case TensorId::lse:
      lse = static_cast<float*>(address);
      break;
    case TensorId::d_o:
      d_o = address;
      break;
    case TensorId::dq:
      dq = address;
      break;
    case TensorId::dk:
      dk = address;
      break;
    case TensorId::dv:
      dv = address;
      break;
  }
}

std::vector<ShapeTable> tables_of(const Shape& shape) {
  const Visibility& v = shape.visibility;
  std::vector<ShapeTable> tables;
  add_table(tables, TableId::page_table, "page_table", shape.paging.table);
  add_table(tables, TableId::lengths, "lengths", v.lengths);
  add_table(tables, TableId::document_query, "document_query", v.documents.first_query);
  add_table(tables, TableId::document_key, "document_key", v.documents.first_key);
  add_table(tables, TableId::columns, "columns", v.columns.queries);
  add_table(tables, TableId::block_first, "block_first", v.blocks.first);
  add_table(tables, TableId::block_keys, "block_keys", v.blocks.key_blocks);
  add_table(tables, TableId::dense, "dense", v.dense.visible);
  add_table(tables, TableId::slopes, "slopes", shape.score.alibi);
  add_table(tables, TableId::bias, "bias", shape.score.bias.values);
  return tables;
}

Encoded encode_input(const Shape& shape, TensorId id, std::span<const float> values,
                     std::span<const float> means) {
  Encoded encoded = encode_tensor(shape, id, values, means);
  if (shape.layout.of(id) == Strides{}) return encoded;
  const std::size_t size = size_of(type_of(shape, id));
  std::vector<std::byte> strided(elements_spanned(shape, id) * size, std::byte(kPoison));
  scatter(shape, id, encoded.bytes, strided, size);
  encoded.bytes = std::move(strided);
  return encoded;
}

std::vector<float> decode_output(const Shape& shape, TensorId id, std::span<const std::byte> bytes) {
  const DType type = type_of(shape, id);
  if (shape.layout.of(id) == Strides{}) return decode(type, bytes);
  std::vector<std::byte> dense(elements_of(shape, id) * size_of(type));
  gather(shape, id, bytes, dense, size_of(type));
  return decode(type, dense);
}

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
  const auto input = [&](TensorId id) { return encode_input(shape, id, inputs[id], inputs.means(id)); };
  return {input(TensorId::q), input(TensorId::k), input(TensorId::v)};
}

void round_inputs(const Shape& shape, Inputs& inputs) {
  if (shape.mean_subtracted && inputs.k_mean.empty()) {
    inputs.k_mean = means_of(shape, inputs.k);
    inputs.v_mean = means_of(shape, inputs.v);
  }
  const Encoded q = encode_tensor(shape, TensorId::q, inputs.q, {}),
                k = encode_tensor(shape, TensorId::k, inputs.k, inputs.k_mean),
                v = encode_tensor(shape, TensorId::v, inputs.v, inputs.v_mean);
  inputs.q = decode(shape.dtype, q.bytes);
  inputs.k = decode(shape.dtype, k.bytes);
  inputs.v = decode(shape.dtype, v.bytes);
  round_to(type_of(shape, TensorId::o), inputs.o);
  round_to(type_of(shape, TensorId::d_o), inputs.d_o);
  if (shape.dtype != DType::e4m3) return;
  for (int64_t i = 0; i < shape.q_elements(); ++i)
    inputs.q[i] *= q.scales[shape.q_scale_of(i / shape.head_dim)];
  for (int64_t i = 0; i < shape.k_elements(); ++i) {
    const int64_t scale = shape.k_scale_of(i / shape.head_dim);
    inputs.k[i] *= k.scales[scale];
    inputs.v[i] *= v.scales[scale];
    if (!shape.mean_subtracted) continue;
    inputs.k[i] += inputs.k_mean[column_of(shape, i)];
    inputs.v[i] += inputs.v_mean[column_of(shape, i)];
  }
}

}  // namespace flashbook
