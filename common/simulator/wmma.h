/// \file
/// nvcuda::wmma for the simulator: 16x16x16 products of f16 or bf16 with float accumulators.
///
/// CUDA does not specify the position of a matrix element in a fragment. Here the layout depends on the seed,
/// so a kernel that relies on one layout fails.
#pragma once
#include <type_traits>

#include "common/simulator/language.h"
#include "common/simulator/location.h"

namespace flashbook::sim {

enum class FragmentUse { a, b, accumulator };

/// The arguments of load_matrix_sync and store_matrix_sync: a lane's fragment and the matrix.
struct FragmentInMemory {
  FragmentUse use;
  int element_bytes;
  void* elements;   ///< the lane's elements
  void* matrix;     ///< in shared or global memory
  unsigned stride;  ///< number of elements between rows or columns
  bool rows;        ///< whether rows are contiguous
};

void load_fragment(FragmentInMemory&& fragment, Location where);
void store_fragment(FragmentInMemory&& fragment, Location where);

/// Computes d = a * b + c; each pointer points to the lane's elements.
void multiply_fragments(DType type, float* d, const void* a, const void* b, const float* c, Location where);

}  // namespace flashbook::sim

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

/// A lane's share of a matrix. Elements may be modified, but only all of them in the same way, since their
/// positions are unspecified.
template <typename Use, int m, int n, int k, typename T, typename Layout = void>
struct fragment {
  static_assert(m == 16 && n == 16 && k == 16, "the simulator supports only 16x16x16 fragments");
  static constexpr bool is_accumulator = std::is_same_v<Use, accumulator>;
  static_assert(is_accumulator ? std::is_same_v<T, float>
                               : std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                "the simulator supports only __half and __nv_bfloat16 operands and float accumulators");
  static_assert(std::is_void_v<Layout> == is_accumulator, "operands have a layout, accumulators have none");
  /// Every element of an operand is stored twice, as on a GPU.
  enum { num_elements = is_accumulator ? 8 : 16, num_storage_elements = num_elements };
  using element_type = T;
  using storage_element_type = T;
  T x[num_elements];
};

template <typename Use, typename T, typename Layout>
FLASHBOOK_UNTRACED void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& a, const T& value) {
  for (T& element : a.x) element = value;
}

template <typename Use, typename T, typename Layout>
FLASHBOOK_UNTRACED void load_matrix_sync(
    fragment<Use, 16, 16, 16, T, Layout>& a, const T* matrix, unsigned stride,
    flashbook::sim::Location where = flashbook::sim::Location::current()) {
  using flashbook::sim::FragmentUse;
  const auto use = std::is_same_v<Use, matrix_a> ? FragmentUse::a : FragmentUse::b;
  flashbook::sim::load_fragment(
      {use, int(sizeof(T)), a.x, const_cast<T*>(matrix), stride, std::is_same_v<Layout, row_major>}, where);
}

FLASHBOOK_UNTRACED inline void load_matrix_sync(
    fragment<accumulator, 16, 16, 16, float>& a, const float* matrix, unsigned stride, layout_t layout,
    flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::load_fragment({flashbook::sim::FragmentUse::accumulator, int(sizeof(float)), a.x,
                                 const_cast<float*>(matrix), stride, layout == mem_row_major},
                                where);
}

FLASHBOOK_UNTRACED inline void store_matrix_sync(
    float* matrix, const fragment<accumulator, 16, 16, 16, float>& a, unsigned stride, layout_t layout,
    flashbook::sim::Location where = flashbook::sim::Location::current()) {
  flashbook::sim::store_fragment({flashbook::sim::FragmentUse::accumulator, int(sizeof(float)),
                                  const_cast<float*>(a.x), matrix, stride, layout == mem_row_major},
                                 where);
}

template <typename T, typename LayoutA, typename LayoutB>
FLASHBOOK_UNTRACED void mma_sync(fragment<accumulator, 16, 16, 16, float>& d,
                                 const fragment<matrix_a, 16, 16, 16, T, LayoutA>& a,
                                 const fragment<matrix_b, 16, 16, 16, T, LayoutB>& b,
                                 const fragment<accumulator, 16, 16, 16, float>& c,
                                 flashbook::sim::Location where = flashbook::sim::Location::current()) {
  const auto type = std::is_same_v<T, __half> ? flashbook::DType::f16 : flashbook::DType::bf16;
  flashbook::sim::multiply_fragments(type, d.x, a.x, b.x, c.x, where);
}

}  // namespace nvcuda::wmma
