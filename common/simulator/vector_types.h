/// \file
/// CUDA's vector types.
#pragma once

namespace flashbook::sim {

/// Two values that are read and written together.
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
  // A plain struct is split into its members before memory accesses are counted. When it is copied through a
  // vector register, it remains a single access, as on the GPU.
  Vector2(const Vector2& other) : packed(other.packed) {}
  Vector2& operator=(const Vector2& other) {
    packed = other.packed;
    return *this;
  }
};

/// Four values that are read and written together.
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
  Vector4(const Vector4& other) : packed(other.packed) {}  // a single access, as above
  Vector4& operator=(const Vector4& other) {
    packed = other.packed;
    return *this;
  }
};

/// Vectors of one or three values, which are read and written individually, as on a GPU.
template <typename T>
struct Vector1 {
  T x;
};
template <typename T>
struct Vector3 {
  T x, y, z;
};

}  // namespace flashbook::sim

// The types char1 ... char4, the functions make_char1 ... make_char4, and so on.
#define FLASHBOOK_VECTORS(name, T)                                   \
  using name##1 = flashbook::sim::Vector1<T>;                        \
  using name##2 = flashbook::sim::Vector2<T>;                        \
  using name##3 = flashbook::sim::Vector3<T>;                        \
  using name##4 = flashbook::sim::Vector4<T>;                        \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
FLASHBOOK_VECTORS(char, signed char)
FLASHBOOK_VECTORS(uchar, unsigned char)
FLASHBOOK_VECTORS(short, short)
FLASHBOOK_VECTORS(ushort, unsigned short)
FLASHBOOK_VECTORS(int, int)
FLASHBOOK_VECTORS(uint, unsigned)
FLASHBOOK_VECTORS(float, float)
#undef FLASHBOOK_VECTORS
// Two 8-byte values already fill the widest access.
using longlong2 = flashbook::sim::Vector2<long long>;
using ulonglong2 = flashbook::sim::Vector2<unsigned long long>;
using double2 = flashbook::sim::Vector2<double>;
using double3 = flashbook::sim::Vector3<double>;
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline double3 make_double3(double x, double y, double z) { return {x, y, z}; }

/// The size of a grid or a block; omitted dimensions are 1.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 size) : x(size.x), y(size.y), z(size.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
