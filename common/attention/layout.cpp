#include "common/attention/layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "common/attention/error.h"
#include "common/attention/operation.h"

namespace flashbook {
namespace {

constexpr int64_t kAlignment = 16;  // in bytes: the size of a thread's load, and the unit of TMA's strides
constexpr TensorId kStrided[] = {TensorId::q,   TensorId::k,  TensorId::v,  TensorId::o,
                                 TensorId::d_o, TensorId::dq, TensorId::dk, TensorId::dv};

/// Calls body(row, first) with the row's number in the default layout and the offset of its first element.
template <typename Body>
void for_each_row(const Spec& spec, TensorId id, Body body) {
  const std::vector<int64_t> dims = dims_of(spec, id);
  const Strides strides = spec.strides(id);
  int64_t row = 0;
  for (int64_t batch = 0; batch < dims[0]; ++batch)
    for (int64_t head = 0; head < dims[1]; ++head)
      for (int64_t i = 0; i < dims[2]; ++i)
        body(row++, batch * strides.batch + head * strides.head + i * strides.row);
}

void validate_strides(const Spec& spec, TensorId id) {
  struct Axis {
    const char* name;
    int64_t stride, count;
  };
  const std::vector<int64_t> dims = dims_of(spec, id);
  const Strides strides = spec.layout.of(id);
  Axis axes[] = {
      {"batch", strides.batch, dims[0]}, {"head", strides.head, dims[1]}, {"row", strides.row, dims[2]}};
  const std::string of_tensor = " stride of " + std::string(name_of(id));
  const int64_t multiple = kAlignment / int64_t(size_of(type_of(spec, id)));
  for (const Axis& axis : axes)
    if (axis.stride <= 0 || axis.stride % multiple != 0)
      throw InputError("the ", axis.name, of_tensor, " is ", axis.stride, " elements: give a multiple of ",
                       multiple, ", 16 bytes");
  // From the shortest stride to the longest, each must step over everything that the previous strides reach.
  std::ranges::sort(axes, {}, &Axis::stride);
  double reached = stored_columns(spec, id);  // number of elements; a double, since products may overflow
  for (const Axis& axis : axes) {
    if (axis.count > 1 && double(axis.stride) < reached)
      throw InputError("the ", axis.name, of_tensor, " is ", axis.stride,
                       " elements, so that rows overlap: give at least ", int64_t(reached));
    reached += double(axis.count - 1) * double(axis.stride);
  }
  if (reached > std::ldexp(1.0, 40))
    throw InputError(name_of(id), " spans more than 2^40 elements: give shorter strides or a smaller batch");
}

}  // namespace

const Strides& Layout::of(TensorId id) const {
  static constexpr Strides kOfLse;
  const Strides* const all[] = {&q, &k, &v, &o, &kOfLse, &d_o, &dq, &dk, &dv};
  return *all[int(id)];
}

Strides Spec::strides(TensorId id) const {
  if (!is_stored(*this, id)) return strides(TensorId::k);
  if (layout.of(id) != Strides{}) return layout.of(id);
  const std::vector<int64_t> dims = dims_of(*this, id);
  const int64_t row = stored_columns(*this, id);
  return {.batch = dims[1] * dims[2] * row, .head = dims[2] * row, .row = row};
}

Layout layout_bshd(const Spec& spec) {
  const auto strides = [&](TensorId id) {
    const std::vector<int64_t> dims = dims_of(spec, id);  // [batch, heads, seqlen, head_dim]
    const int64_t row = stored_columns(spec, id);
    return Strides{.batch = dims[2] * dims[1] * row, .head = row, .row = dims[1] * row};
  };
  const Strides q = strides(TensorId::q), k = strides(TensorId::k), dk = strides(TensorId::dk);
  const Strides o = strides(TensorId::o);
  const Strides v = is_stored(spec, TensorId::v) ? strides(TensorId::v) : Strides{};
  return {.q = q, .k = k, .v = v, .o = o, .d_o = o, .dq = q, .dk = dk, .dv = strides(TensorId::dv)};
}

Layout layout_packed_qkv(const Spec& spec) {
  const int64_t row = (int64_t(spec.heads) + 2 * int64_t(spec.kv_heads)) * spec.head_dim;
  const Strides slice{.batch = spec.seqlen_q * row, .head = spec.head_dim, .row = row};
  const Strides o = layout_bshd(spec).o;
  return {.q = slice, .k = slice, .v = slice, .o = o, .d_o = o, .dq = slice, .dk = slice, .dv = slice};
}

int stored_columns(const Spec& spec, TensorId id) {
  return id == TensorId::k && spec.has_latent_rows_in_e4m3() ? kLatentRowBytes : columns_of(spec, id);
}

int64_t elements_spanned(const Spec& spec, TensorId id) {
  if (!is_stored(spec, id)) return 0;
  const std::vector<int64_t> dims = dims_of(spec, id);
  const Strides strides = spec.strides(id);
  const int64_t row = stored_columns(spec, id);
  return (dims[0] - 1) * strides.batch + (dims[1] - 1) * strides.head + (dims[2] - 1) * strides.row + row;
}

void scatter(const Spec& spec, TensorId id, std::span<const std::byte> from, std::span<std::byte> to,
             std::size_t element_bytes) {
  const std::size_t row_bytes = stored_columns(spec, id) * element_bytes;
  for_each_row(spec, id, [&](int64_t row, int64_t first) {
    std::memcpy(&to[first * element_bytes], &from[row * row_bytes], row_bytes);
  });
}

void gather(const Spec& spec, TensorId id, std::span<const std::byte> from, std::span<std::byte> to,
            std::size_t element_bytes) {
  const std::size_t row_bytes = stored_columns(spec, id) * element_bytes;
  for_each_row(spec, id, [&](int64_t row, int64_t first) {
    std::memcpy(&to[row * row_bytes], &from[first * element_bytes], row_bytes);
  });
}

void validate_layout(const Spec& spec) {
  for (TensorId id : kStrided)
    if (spec.layout.of(id) != Strides{}) validate_strides(spec, id);
}

}  // namespace flashbook
