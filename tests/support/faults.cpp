#include "tests/support/faults.h"

#include <algorithm>

namespace flashbook::testing {
namespace {

/// Returns K or V with a different number of keys: row j of a head is the old row from(j).
template <typename From>
std::vector<float> with_rows(const Spec& spec, const std::vector<float>& old, int keys, From from) {
  const int64_t heads = int64_t(spec.batch) * spec.kv_heads, dims = spec.head_dim;
  std::vector<float> rows(heads * keys * dims);
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t key = 0; key < keys; ++key)
      std::copy_n(&old[(head * spec.seqlen_k + from(key)) * dims], dims, &rows[(head * keys + key) * dims]);
  return rows;
}

/// Returns the problem with one key more or less. A causal mask is aligned to the last key, so it moves with
/// the number of keys.
template <typename From>
Problem resized(const Spec& spec, const Inputs& inputs, int keys, From from) {
  Problem faulty{spec, inputs};
  faulty.spec.seqlen_k = keys;
  faulty.inputs.k = with_rows(spec, inputs.k, keys, from);
  faulty.inputs.v = with_rows(spec, inputs.v, keys, from);
  return faulty;
}

}  // namespace

Problem with_fault(const Spec& spec, const Inputs& inputs, Fault fault, int key) {
  const int64_t dims = spec.head_dim;
  const int64_t row = ((int64_t(spec.batch) * spec.kv_heads - 1) * spec.seqlen_k + key) * dims;
  Problem faulty{spec, inputs};
  switch (fault) {
    case Fault::zero_value_row:
      std::fill_n(faulty.inputs.v.begin() + row, dims, 0.0f);
      return faulty;
    case Fault::swap_key_rows:
      std::swap_ranges(faulty.inputs.k.begin() + row, faulty.inputs.k.begin() + row + dims,
                       faulty.inputs.k.begin() + row + dims);
      return faulty;
    case Fault::drop_last_key:
      return resized(spec, inputs, spec.seqlen_k - 1, [](int64_t j) { return j; });
    case Fault::double_probability:
      return resized(spec, inputs, spec.seqlen_k + 1, [](int64_t j) { return std::max<int64_t>(0, j - 1); });
  }
  return faulty;
}

std::string name_of(Fault fault) {
  switch (fault) {
    case Fault::zero_value_row:
      return "zero_value_row";
    case Fault::swap_key_rows:
      return "swap_key_rows";
    case Fault::drop_last_key:
      return "drop_last_key";
    case Fault::double_probability:
      return "double_probability";
  }
  return "?";
}

}  // namespace flashbook::testing
