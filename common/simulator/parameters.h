/// \file
/// Converts the arguments of a launch to the parameters of a kernel.
#pragma once
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace flashbook::sim {

/// `__grid_constant__` inserts a parameter of this type before its own, so that a launch can detect it.
struct GridConstant {};

/// The number of parameters that a kernel's source declares.
template <typename... Params>
constexpr std::size_t kNamedParameters = (std::size_t(!std::is_same_v<Params, GridConstant>) + ... + 0);

/// While an object of this class exists and `is_one` is true, copies go to a parameter that is
/// `__grid_constant__` (tensor_map.h).
class PassesGridConstant {
 public:
  explicit PassesGridConstant(bool is_one);
  ~PassesGridConstant();
  PassesGridConstant(const PassesGridConstant&) = delete;
  PassesGridConstant& operator=(const PassesGridConstant&) = delete;
};

template <std::size_t kNumber, typename T>
struct Parameter {
  T value;
};

template <std::size_t kNumber, typename T>
const T& get(const Parameter<kNumber, T>& parameter) {
  return parameter.value;
}

template <typename Numbers, typename... Params>
struct ParameterList;

template <std::size_t... kNumbers, typename... Params>
struct ParameterList<std::index_sequence<kNumbers...>, Params...> : Parameter<kNumbers, Params>... {
  void pass_to(void (*kernel)(Params...)) const { kernel(get<kNumbers>(*this)...); }
  template <typename Function>
  void for_each([[maybe_unused]] Function function) const {
    (function(get<kNumbers>(*this)), ...);
  }
};

/// The values of a kernel's parameters. (A std::tuple with twenty elements takes seconds to compile, since
/// its constructors have constraints.)
template <typename... Params>
using Parameters = ParameterList<std::index_sequence_for<Params...>, Params...>;

/// Returns the value of one parameter.
template <typename Param, bool kIsGridConstant, typename Arg>
Param parameter(const Arg& arg) {
  const PassesGridConstant guard(kIsGridConstant);
  return static_cast<Param>(arg);
}

/// Returns the values of a kernel's parameters, each converted from its argument.
template <typename... Params, typename... Args>
Parameters<Params...> parameters(const Args&... args) {
  static_assert(kNamedParameters<Params...> == sizeof...(Args),
                "pass one argument for each of the kernel's parameters");
  constexpr std::array<bool, sizeof...(Params) + 1> kIsMark{std::is_same_v<Params, GridConstant>...};
  constexpr auto kArguments = [&] {  // the index of each parameter's argument
    std::array<std::size_t, sizeof...(Params) + 1> numbers{};
    for (std::size_t i = 0; i < sizeof...(Params); ++i) numbers[i + 1] = numbers[i] + !kIsMark[i];
    return numbers;
  }();
  [[maybe_unused]] const Parameters<const Args&...> given{{args}...};
  [[maybe_unused]] const auto value = [&]<std::size_t kNumber, typename Param>() -> Param {
    if constexpr (kIsMark[kNumber])
      return {};
    else
      return parameter < Param,
             kNumber != 0 && kIsMark[kNumber - (kNumber != 0)] > (get<kArguments[kNumber]>(given));
  };
  return [&]<std::size_t... kNumbers>(std::index_sequence<kNumbers...>) {
    return Parameters<Params...>{{value.template operator()<kNumbers, Params>()}...};
  }
  (std::index_sequence_for<Params...>());
}

}  // namespace flashbook::sim
