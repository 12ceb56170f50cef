/// \file
/// The sizes of the tuned kernels, and the launch that the chapter's steps and the ablation of step 5 share.
#pragma once
#include "chapters/04_flash_attention_2/step5_tuned.cuh"
#include "common/attention/tensors.h"
#include "common/device/launch.h"
#include "common/numeric/arithmetic.h"

namespace flashbook::fa2 {

// By a sweep on an H200. d = 64: 32 rows per warp and Q in registers, two blocks per multiprocessor. d = 128:
// O alone takes 128 registers, so Q is read again with every tile; step 6's idea for d = 64 gains nothing
// here, so step 6 is step 5. d = 256: 16 rows per warp, eight warps, one block; step 6 has a kernel of its
// own there. On cards that grant a block less, such as an A100 with 163 KB or an RTX 4090 with 99, both steps
// have half as many queries and tiles of 32 keys: 96 KB.

/// The sizes of steps 5 and 6.
template <int kHeadDim, int kStep>
struct TraitsFor;
template <int kStep>
struct TraitsFor<64, kStep> : KernelTraits<64, 4, 2, true, 2, kStep == 6 ? 2 : 0> {};
template <int kStep>
struct TraitsFor<128, kStep> : KernelTraits<128, 4, 2, false, 2> {};
template <>
struct TraitsFor<256, 5> : KernelTraits<256, 8, 1, false, 1> {};
using SmallTraits256 = KernelTraits<256, 4, 1, false, 1, 0, 32>;

/// A kernel and how it is launched.
template <typename T>
struct Launch {
  void (*kernel)(const T*, const T*, const T*, T*, float*, Problem);
  int queries;  ///< of a block
  int threads, shared_bytes;
};

/// The launch of a tuned kernel.
template <typename T, typename Traits>
constexpr Launch<T> tuned_launch() {
  return {tuned<T, Traits>, Traits::kQueries, Traits::kThreads, Traits::kSharedBytes};
}

/// A block for each tile of queries and each head.
template <typename T>
void run_launch(const Launch<T>& how, const Shape& shape, const Tensors& t, device::Stream stream) {
  const Problem problem = {shape.seqlen_q, shape.seqlen_k, shape.heads / shape.kv_heads,
                           shape.causal(), shape.scale,    shape.scale * kLog2e};
  const dim3 grid(ceil_div(int64_t(shape.seqlen_q), how.queries), shape.batch * shape.heads);
  device::launch(how.kernel, grid, dim3(how.threads), how.shared_bytes, stream, static_cast<const T*>(t.q),
                 static_cast<const T*>(t.k), static_cast<const T*>(t.v), static_cast<T*>(t.o), t.lse,
                 problem);
}

}  // namespace flashbook::fa2
