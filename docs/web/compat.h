/// \file The parts of C++20 used here that the libc++ of older emscriptens lacks (the one in Debian 12 has
/// version 13). Included before everything else.
#pragma once
#include <version>
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000
#include <algorithm>
#include <functional>
#include <iterator>
#include <thread>
#include <utility>

namespace std {

class jthread : public thread {
 public:
  using thread::thread;
  jthread(jthread&&) = default;
  ~jthread() {
    if (joinable()) join();
  }
};

template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

namespace ranges {
// These are in a separate namespace so that argument-dependent lookup in ranges:: does not find them.
namespace flashbook_compat {

template <class R, class F>
bool all_of(R&& r, F f) {
  return std::all_of(std::begin(r), std::end(r), [&](auto&& x) { return std::invoke(f, x); });
}
template <class R, class F>
bool any_of(R&& r, F f) {
  return std::any_of(std::begin(r), std::end(r), [&](auto&& x) { return std::invoke(f, x); });
}
template <class R, class F>
bool none_of(R&& r, F f) {
  return !any_of(r, f);
}
template <class R, class O>
O copy(R&& r, O o) {
  return std::copy(std::begin(r), std::end(r), o);
}
template <class R, class T>
constexpr auto count(R&& r, const T& t) {
  return std::count(std::begin(r), std::end(r), t);
}
template <class R, class T>
void fill(R&& r, const T& t) {
  std::fill(std::begin(r), std::end(r), t);
}
template <class R, class T>
constexpr auto find(R&& r, const T& t) {
  return std::find(std::begin(r), std::end(r), t);
}
template <class R, class T, class P>
constexpr auto find(R&& r, const T& t, P p) {
  return std::find_if(std::begin(r), std::end(r), [&](auto&& x) { return std::invoke(p, x) == t; });
}
template <class R, class F>
constexpr auto find_if(R&& r, F f) {
  return std::find_if(std::begin(r), std::end(r), f);
}
template <class R, class F, class P>
constexpr auto find_if(R&& r, F f, P p) {
  return std::find_if(std::begin(r), std::end(r), [&](auto&& x) { return f(std::invoke(p, x)); });
}
template <class R>
bool is_sorted(R&& r) {
  return std::is_sorted(std::begin(r), std::end(r));
}
template <class R, class T>
auto lower_bound(R&& r, const T& t) {
  return std::lower_bound(std::begin(r), std::end(r), t);
}
template <class R, class T>
auto upper_bound(R&& r, const T& t) {
  return std::upper_bound(std::begin(r), std::end(r), t);
}
template <class R, class T, class C, class P>
auto upper_bound(R&& r, const T& t, C c, P p) {
  return std::upper_bound(std::begin(r), std::end(r), t,
                          [&](const T& a, const auto& b) { return c(a, std::invoke(p, b)); });
}
template <class R>
auto max_element(R&& r) {
  return std::max_element(std::begin(r), std::end(r));
}
template <class R, class I>
void nth_element(R&& r, I i) {
  std::nth_element(std::begin(r), i, std::end(r));
}
template <class R, class F, class T>
void replace_if(R&& r, F f, const T& t) {
  std::replace_if(std::begin(r), std::end(r), f, t);
}
template <class R, class C = std::less<>>
void sort(R&& r, C c = {}) {
  std::sort(std::begin(r), std::end(r), c);
}
template <class R, class C = std::less<>, class P>
void sort(R&& r, C, P p) {
  std::sort(std::begin(r), std::end(r),
            [&](const auto& a, const auto& b) { return std::invoke(p, a) < std::invoke(p, b); });
}

}  // namespace flashbook_compat
using namespace flashbook_compat;
}  // namespace ranges
}  // namespace std
#endif
