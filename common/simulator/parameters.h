/// \file
/// Converts the arguments of a launch to the parameters of a kernel.
#pragma once
#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace flashbook::sim {

/// `__grid_constant__` inserts a parameter of this type before its own, so that a launch can see it.
struct GridConstant {};

/// The number of parameters that a kernel's source declares.
template <typename... Params>
constexpr std::size_t kNamedParameters = (std::size_t(!std::is_same_v<Params, GridConstant>) + ... + 0);

/// While an object of this class exists, copies go to a parameter that is `__grid_constant__` if `is_one` is
/// true (tensor_map.h).
class PassesGridConstant {
 public:
  explicit PassesGridConstant(bool is_one);
  ~PassesGridConstant();
  PassesGridConstant(const PassesGridConstant&) = delete;
  PassesGridConstant& operator=(const PassesGridConstant&) = delete;
};

/// Returns the values of a kernel's parameters, each converted from its argument.
template <typename... Params, typename... Args>
std::tuple<Params...> parameters(const Args&... args) {
  static_assert(kNamedParameters<Params...> == sizeof...(Args),
                "pass one argument for each of the kernel's parameters");
  constexpr std::array<bool, sizeof...(Params) + 1> kIsMark{std::is_same_v<Params, GridConstant>...};
  [[maybe_unused]] const std::tuple<const Args&...> given(args...);
  [[maybe_unused]] const auto value = [&]<std::size_t kNumber, typename Param>() -> Param {
    if constexpr (kIsMark[kNumber]) {
      return {};
    } else {
      constexpr std::size_t kArgument = [&] {
        std::size_t named = 0;
        for (std::size_t i = 0; i < kNumber; ++i) named += !kIsMark[i];
        return named;
      }();
      const PassesGridConstant guard(kNumber > 0 && kIsMark[kNumber - (kNumber > 0)]);
      return static_cast<Param>(std::get<kArgument>(given));
    }
  };
  return [&]<std::size_t... kNumbers>(std::index_sequence<kNumbers...>) {
    return std::tuple<Params...>(value.template operator()<kNumbers, Params>()...);
  }
  (std::index_sequence_for<Params...>());
}

}  // namespace flashbook::sim
