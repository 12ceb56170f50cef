/// \file
/// Inputs and outputs of a capstone; README.md explains them.
#pragma once
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device/launch.h"
#include "common/device/tensor_map.h"
#include "common/ptx/atomic.h"
#include "common/ptx/barrier.h"
#include "common/ptx/bulk_copy.h"
#include "common/ptx/convert.h"
#include "common/ptx/cp_async.h"
#include "common/ptx/fence.h"
#include "common/ptx/ldmatrix.h"
#include "common/ptx/math.h"
#include "common/ptx/mbarrier.h"
#include "common/ptx/mma.h"
#include "common/ptx/setmaxnreg.h"
#include "common/ptx/stmatrix.h"
#include "common/ptx/tma.h"
#include "common/ptx/wgmma.h"
#include "common/ptx/wgmma_layout.h"

namespace flashbook::capstone {

using device::tensor_map;
using device::TensorTiles;

constexpr int kHeadDim = 64;

/// Attention for one shape, as passed to kernels, by value. Query head h reads key head h / (heads /
/// kv_heads). Rows are contiguous, and every pointer is a multiple of 256 bytes.
struct Forward {
  const __half* q;  ///< [batch, heads, seqlen_q, kHeadDim]
  const __half* k;  ///< [batch, kv_heads, seqlen_k, kHeadDim]
  const __half* v;  ///< [batch, kv_heads, seqlen_k, kHeadDim]
  __half* o;        ///< [batch, heads, seqlen_q, kHeadDim], to be written
  float* lse;       ///< [batch, heads, seqlen_q], to be written: the natural log-sum-exp of scaled scores
  int batch, heads, kv_heads, seqlen_q, seqlen_k;
  bool causal;  ///< query i sees the keys up to i + seqlen_k - seqlen_q; else all
  float scale;  ///< factor on the scores
  int multiprocessors;
};

/// The gradient of attention for one shape. Members with the same names as in Forward mean the same.
struct Backward {
  const __half* q;    ///< [batch, heads, seqlen_q, kHeadDim]
  const __half* k;    ///< [batch, kv_heads, seqlen_k, kHeadDim]
  const __half* v;    ///< [batch, kv_heads, seqlen_k, kHeadDim]
  const __half* o;    ///< [batch, heads, seqlen_q, kHeadDim]
  const __half* d_o;  ///< [batch, heads, seqlen_q, kHeadDim]: the gradient of O
  const float* lse;   ///< [batch, heads, seqlen_q]
  __half* dq;         ///< [batch, heads, seqlen_q, kHeadDim], to be written
  __half* dk;         ///< [batch, kv_heads, seqlen_k, kHeadDim], to be written
  __half* dv;         ///< [batch, kv_heads, seqlen_k, kHeadDim], to be written
  int batch, heads, kv_heads, seqlen_q, seqlen_k;
  bool causal;
  float scale;
  int multiprocessors;
};

/// Which keys a query sees in a variant. For query i and key j, d = i + seqlen_k - seqlen_q - j is the key's
/// distance before the query's own.
enum class Mask {
  /// every stride-th key, before and after: abs(d) < width * stride and d % stride == 0
  dilated,
  /// a window, and every stride-th key of the past: d >= 0 and (d < width or j % stride == 0)
  strided,
  /// the query's own block, and the last key of each earlier block: d >= 0 and ((j + d) / width == j / width
  /// or j % width == width - 1)
  blocks,
  /// keys a power of two back, and the query's own: d is 0, 1, 2, 4, 8, ...
  powers,
};

/// How a variant changes a scaled score s. h is the query's head.
enum class Score {
  /// a cap: cap * tanh(s / cap)
  capped,
  /// reduced for each key of distance: s - by_head[h] * abs(d)
  linear,
  /// reduced by the logarithm of the distance: s - by_head[h] * log(1 + abs(d))
  logarithmic,
  /// a sink, a key that every query sees and that has no value: s, and exp(by_head[h]) once in a row's sum
  sink,
};

/// Attention in a variant: a mask and a change to scores. Members with the same names as in Forward mean the
/// same.
struct Variant {
  const __half* q;       ///< [batch, heads, seqlen_q, kHeadDim]
  const __half* k;       ///< [batch, kv_heads, seqlen_k, kHeadDim]
  const __half* v;       ///< [batch, kv_heads, seqlen_k, kHeadDim]
  const float* by_head;  ///< [heads]
  __half* o;             ///< [batch, heads, seqlen_q, kHeadDim], to be written
  float* lse;            ///< [batch, heads, seqlen_q], to be written
  int batch, heads, kv_heads, seqlen_q, seqlen_k;
  Mask mask;
  Score score;
  int width, stride;  ///< parameters of masks, at least 1
  float cap;          ///< limit of scores, above 0
  float scale;
  int multiprocessors;
};

/// Whether an argument converts to a parameter without running code: on the host no kernel could run it.
template <typename Param, typename Arg>
constexpr bool kIsPlain = (std::is_scalar_v<Param> && std::is_scalar_v<Arg>) ||
                          (std::is_same_v<Param, Arg> && std::is_aggregate_v<Param> &&
                           (std::is_trivially_copyable_v<Param> || std::is_same_v<Param, CUtensorMap>));

/// Parameters, without the simulator's substitute for `__grid_constant__`.
template <typename... Params>
using Named = decltype(std::tuple_cat(
    std::declval<std::conditional_t<std::is_empty_v<Params>, std::tuple<>, std::tuple<Params>>>()...));

template <typename Params, typename... Args>
constexpr bool kTake = false;
template <typename... Params, typename... Args>
requires(sizeof...(Params) ==
         sizeof...(Args)) constexpr bool kTake<std::tuple<Params...>, Args...> = (kIsPlain<Params, Args> &&
                                                                                  ...);

/// Launches, one after another, and the device memory that they need in addition to inputs and outputs.
class Plan {
 public:
  /// Allocates memory for `count` elements, aligned to 256 bytes. Unwritten memory is NaN.
  template <typename T>
  T* workspace(std::size_t count) {
    buffers_.emplace_back(device::Place::device, count * sizeof(T));
    return static_cast<T*>(buffers_.back().data());
  }

  /// Adds a launch of `kernel` with `args` and `bytes` of dynamic shared memory per block.
  template <typename... Params, typename... Args>
  void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              Args... args) {
    static_assert(
        kTake<Named<Params...>, Args...>,
        "arguments are numbers, pointers, maps, or structs of the parameter's type without constructors");
    launches_.emplace_back(
        [=] { device::launch(kernel, grid, block, dynamic_shared_bytes, nullptr, args...); });
  }

  const std::vector<std::function<void()>>& launches() const { return launches_; }

 private:
  std::vector<device::Buffer> buffers_;
  std::vector<std::function<void()>> launches_;
};

}  // namespace flashbook::capstone
