/// \file
/// The sizes of the tuned kernel, and the launch that the chapter's steps and the ablation of step 5 share.
#pragma once
#include "chapters/04_flash_attention_2/step5_tuned.cuh"
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/numeric/arithmetic.h"

namespace flashbook::fa2 {

// Chosen by a sweep on an H200. d = 64: 32 rows per warp and Q in registers, two blocks per multiprocessor. d
// = 128: O alone takes 128 registers, so Q is read again with every tile; step 6's idea for d = 64 gains
// nothing here, so step 6 is step 5. d = 256: 16 rows per warp, eight warps, one block; step 6 has a separate
// kernel there. On GPUs that grant a block less, such as an A100 with 163 KB or an RTX 4090 with 99, both
// steps have half as many queries and tiles of 32 keys: 96 KB.

/// The sizes of step 5.
template <int kHeadDim>
struct TraitsFor;
template <>
struct TraitsFor<64> : KernelTraits<TunedSizes{.head_dim = 64, .keep_queries = true}> {};
template <>
struct TraitsFor<128> : KernelTraits<TunedSizes{.head_dim = 128}> {};
template <>
struct TraitsFor<256>
    : KernelTraits<TunedSizes{.head_dim = 256, .warps = 8, .row_blocks = 1, .blocks_per_sm = 1}> {};
using SmallTraits256 =
    KernelTraits<TunedSizes{.head_dim = 256, .row_blocks = 1, .blocks_per_sm = 1, .keys = 32}>;

/// A kernel and its launch parameters.
template <typename T>
struct Launch {
  void (*kernel)(const T*, const T*, const T*, T*, float*, Problem);
  int queries;  ///< per block
  int threads, shared_bytes;
};

/// Returns the launch of a kernel with the sizes of Traits.
template <typename Traits, typename T>
constexpr Launch<T> launch_with(void (*kernel)(const T*, const T*, const T*, T*, float*, Problem)) {
  return {kernel, Traits::kQueries, Traits::kThreads, Traits::kSharedBytes};
}

/// Launches one block per query tile and head.
template <typename T>
void run_launch(const Launch<T>& how, const Spec& spec, const Tensors& t, device::Stream stream) {
  const Problem problem = {spec.seqlen_q, spec.seqlen_k, spec.heads / spec.kv_heads,
                           spec.causal(), spec.scale,    spec.scale * kLog2e};
  const dim3 grid(ceil_div(int64_t(spec.seqlen_q), how.queries), spec.batch * spec.heads);
  device::launch(how.kernel, grid, dim3(how.threads), how.shared_bytes, stream, static_cast<const T*>(t.q),
                 static_cast<const T*>(t.k), static_cast<const T*>(t.v), static_cast<T*>(t.o), t.lse,
                 problem);
}

}  // namespace flashbook::fa2
