#include "common/attention/operation.h"

#include <functional>
#include <numeric>

namespace flashbook {
namespace {

constexpr TensorSpec kForward[] = {
    {TensorId::q, "q", Role::input},  {TensorId::k, "k", Role::input},      {TensorId::v, "v", Role::input},
    {TensorId::o, "o", Role::output}, {TensorId::lse, "lse", Role::output},
};
constexpr TensorSpec kBackward[] = {
    {TensorId::q, "q", Role::input},     {TensorId::k, "k", Role::input},
    {TensorId::v, "v", Role::input},     {TensorId::o, "o", Role::input},
    {TensorId::lse, "lse", Role::input}, {TensorId::d_o, "do", Role::input},
    {TensorId::dq, "dq", Role::output},  {TensorId::dk, "dk", Role::output},
    {TensorId::dv, "dv", Role::output},
};

}  // namespace

std::string_view name_of(Operation operation) {
  constexpr std::string_view kNames[] = {"forward", "backward", "decode"};
  return kNames[int(operation)];
}

std::span<const TensorSpec> tensors_of(Operation operation) {
  if (operation == Operation::backward) return kBackward;
  return kForward;
}

std::string_view name_of(TensorId id) {
  constexpr std::string_view kNames[] = {"q", "k", "v", "o", "lse", "do", "dq", "dk", "dv"};
  return kNames[int(id)];
}

std::string_view title_of(TensorId id) {
  constexpr std::string_view kTitles[] = {"Q", "K", "V", "O", "log-sum-exp", "dO", "dQ", "dK", "dV"};
  return kTitles[int(id)];
}

int columns_of(const Shape& shape, TensorId id) {
  if (id == TensorId::lse) return 1;
  return id == TensorId::v || id == TensorId::o ? shape.value_dim : shape.head_dim;
}

bool is_stored(const Shape& shape, TensorId id) { return id != TensorId::v || !shape.is_latent(); }

std::vector<int64_t> dims_of(const Shape& shape, TensorId id) {
  const int columns = columns_of(shape, id);
  const bool is_input_of_keys = id == TensorId::k || id == TensorId::v;
  if (id == TensorId::lse) return {shape.batch, shape.heads, shape.seqlen_q};
  if (is_input_of_keys && shape.paging.rows > 0)
    return {shape.paging.pages, shape.kv_heads, shape.paging.rows, columns};
  if (is_input_of_keys || id == TensorId::dk || id == TensorId::dv)
    return {shape.batch, shape.kv_heads, shape.seqlen_k, columns};
  return {shape.batch, shape.heads, shape.seqlen_q, columns};
}

int64_t elements_of(const Shape& shape, TensorId id) {
  if (!is_stored(shape, id)) return 0;
  const std::vector<int64_t> dims = dims_of(shape, id);
  return std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies());
}

DType type_of(const Shape& shape, TensorId id) {
  if (shape.e4m3_cache && (id == TensorId::k || id == TensorId::v)) return DType::e4m3;
  if (id == TensorId::q || id == TensorId::k || id == TensorId::v) return shape.dtype;
  return id == TensorId::lse ? DType::f32 : output_type(shape.dtype);
}

}  // namespace flashbook
