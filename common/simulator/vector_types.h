/// \file
/// CUDA's vector types.
#pragma once

namespace flashbook::sim {

/// Two numbers that are read and written as one.
template <typename T>
struct alignas(2 * sizeof(T)) Vector2 {
  typedef T Packed __attribute__((vector_size(2 * sizeof(T)), may_alias));
  union {
    struct {
      T x, y;
    };
    Packed packed;
  };

  Vector2() = default;
  Vector2(T x, T y) : packed{x, y} {}
  // A plain struct is split into its members before the memory accesses are counted; copied through a vector
  // register it stays the single access that it is on the GPU.
  Vector2(const Vector2& other) : packed(other.packed) {}
  Vector2& operator=(const Vector2& other) {
    packed = other.packed;
    return *this;
  }
};

/// Four numbers that are read and written as one.
template <typename T>
struct alignas(4 * sizeof(T)) Vector4 {
  typedef T Packed __attribute__((vector_size(4 * sizeof(T)), may_alias));
  union {
    struct {
      T x, y, z, w;
    };
    Packed packed;
  };

  Vector4() = default;
  Vector4(T x, T y, T z, T w) : packed{x, y, z, w} {}
  Vector4(const Vector4& other) : packed(other.packed) {}  // one access, as above
  Vector4& operator=(const Vector4& other) {
    packed = other.packed;
    return *this;
  }
};

}  // namespace flashbook::sim

using int2 = flashbook::sim::Vector2<int>;
using int4 = flashbook::sim::Vector4<int>;
using uint2 = flashbook::sim::Vector2<unsigned>;
using uint4 = flashbook::sim::Vector4<unsigned>;
using float2 = flashbook::sim::Vector2<float>;
using float4 = flashbook::sim::Vector4<float>;

inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

/// A position in a grid or a block.
struct uint3 {
  unsigned x, y, z;
};

/// The size of a grid or a block; dimensions left out are 1.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
