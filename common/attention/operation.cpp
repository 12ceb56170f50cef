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

int columns_of(const Sizes& sizes, TensorId id) {
  if (id == TensorId::lse) return 1;
  const bool is_value = id == TensorId::v || id == TensorId::o || id == TensorId::d_o || id == TensorId::dv;
  return is_value ? sizes.value_dim : sizes.head_dim;
}

bool is_stored(const Sizes& sizes, TensorId id) { return id != TensorId::v || !sizes.is_latent(); }

std::vector<int64_t> dims_of(const Spec& spec, TensorId id) {
  const int columns = columns_of(spec, id);
  const bool is_input_of_keys = id == TensorId::k || id == TensorId::v;
  if (id == TensorId::lse) return {spec.batch, spec.heads, spec.seqlen_q};
  if (is_input_of_keys && spec.paging.rows > 0)
    return {spec.paging.pages, spec.kv_heads, spec.paging.rows, columns};
  if (is_input_of_keys || id == TensorId::dk || id == TensorId::dv)
    return {spec.batch, spec.kv_heads, spec.seqlen_k, columns};
  return {spec.batch, spec.heads, spec.seqlen_q, columns};
}

int64_t elements_of(const Spec& spec, TensorId id) {
  if (!is_stored(spec, id)) return 0;
  const std::vector<int64_t> dims = dims_of(spec, id);
  return std::accumulate(dims.begin(), dims.end(), int64_t(1), std::multiplies());
}

DType type_of(const Spec& spec, TensorId id) {
  if (spec.e4m3.cache && (id == TensorId::k || id == TensorId::v)) return DType::e4m3;
  if (id == TensorId::q || id == TensorId::k || id == TensorId::v) return spec.dtype;
  return id == TensorId::lse ? DType::f32 : output_type(spec.dtype);
}

}  // namespace flashbook
